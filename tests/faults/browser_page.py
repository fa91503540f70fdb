"""The dashboard in a tab of a browser, as a user reads and presses it.

With `CAUSAL_SCREENSHOTS=docs/assets` the pictures of the guide are written there.
"""

from __future__ import annotations

import os
import time
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.job import wait_for

pytest.importorskip("selenium.webdriver", reason="the browser is driven by Selenium (extra `dev`)")
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By

PICTURES = os.environ.get("CAUSAL_SCREENSHOTS", "")

_TEXT = """
    return [...document.querySelectorAll(arguments[0])].filter(each => each.checkVisibility())
        .map(each => each.innerText ?? each.textContent).join("\\n")
"""
_BUTTON = (
    "return [...document.querySelectorAll('button')].find(each => each.innerText.startsWith(arguments[0])) ?? null"
)
"""Scripts, because Selenium's own look at the text of an element takes the processor for longer than the job does."""

LOOK_S = 0.1
"""The time between two looks at the page, each of which has the browser lay it out."""

SHOWN_S = 60.0
"""The time for what the page shows within moments, also on a machine that is ten times too busy."""


class Page:
    """A tab with the dashboard in it."""

    def __init__(self, browser: Any, url: str) -> None:
        self.browser = browser
        browser.get(url)

    def text(self, selector: str = "main") -> str:
        """Return the text that a user reads there; empty where there is no such element."""
        return str(self.browser.execute_script(_TEXT, selector))

    def until(self, text: str, selector: str = "main") -> None:
        """Wait until the text is there."""
        self._wait(f"the page shows {text!r}", lambda: text in self.text(selector))

    def _wait(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait for what takes moments; the text of the page is in the failure."""

        def look() -> bool:
            shown = holds()
            if not shown:
                time.sleep(LOOK_S)
            return shown

        try:
            wait_for(what, look, SHOWN_S)
        except AssertionError as problem:
            raise AssertionError(f"{problem}\n{self.text('body')}") from None

    def open(self, view: str) -> None:
        """Follow the link to a view."""
        self.follow(view)
        self._wait(f"{view} is open", lambda: self.text("nav a[aria-current]") == view)

    def press(self, button: str) -> None:
        """Press a button as soon as it is there."""
        self._click(button, lambda: self.browser.execute_script(_BUTTON, button))

    def kill(self, what: str) -> None:
        """Press a button that kills, and confirms it."""
        self.press(f"Kill {what}")
        self.press("Kill it")

    def follow(self, link: str) -> None:
        """Follow a link as soon as it is there."""
        self._click(link, lambda: next(iter(self.browser.find_elements(By.LINK_TEXT, link)), None))

    def _click(self, what: str, look: Callable[[], Any]) -> None:
        """Clicks an element as soon as it is there; the page may replace it at any moment."""

        def clicked() -> bool:
            shown = look()
            try:
                if shown is not None:
                    shown.click()
                return shown is not None
            except StaleElementReferenceException:
                return False

        self._wait(f"{what!r} is clicked", clicked)

    def problems(self) -> list[Any]:
        """Return the lines of the browser's console."""
        return [entry["message"] for entry in self.browser.get_log("browser")]

    def wide(self) -> bool:
        """Return whether the page as a whole must be scrolled sideways."""
        return bool(
            self.browser.execute_script("return document.documentElement.scrollWidth > document.body.clientWidth + 1")
        )

    def picture(self, name: str) -> None:
        """Keep a picture for the docs, if they are wanted."""
        if not PICTURES:
            return
        wait_for("messages are gone", lambda: not self.text("#done"))
        # A bar that is there stays until the page is laid out again.
        self.browser.execute_script("document.documentElement.style.scrollbarWidth = 'none'")
        width, height, scrolled = self.browser.execute_script(
            "const bottom = document.querySelector('main').getBoundingClientRect().bottom;"
            "return [innerWidth, Math.min(innerHeight, bottom), scrollY]"
        )
        clip = {"x": 0, "y": scrolled, "width": width, "height": height, "scale": 1}
        taken = self.browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", "clip": clip})
        (Path(PICTURES) / f"dashboard-{name}.png").write_bytes(b64decode(taken["data"]))
