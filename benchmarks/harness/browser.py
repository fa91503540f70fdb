"""Debian's Chromium, without a window, driven by Selenium (extra `dev`)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MISSING = "there is no Chromium with its driver (Debian: apt install chromium chromium-driver)"


def present() -> bool:
    """Return whether there is everything that `browsing` needs."""
    return CHROMIUM is not None and DRIVER is not None and find_spec("selenium") is not None


@contextmanager
def browsing(directory: Path) -> Iterator[Any]:
    """Yield a browser that has started, as Selenium's driver.

    Args:
        directory: keeps the browser's profile.
    """
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1300,900",
        "--disable-background-networking", f"--user-data-dir={directory / 'profile'}",
    ):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield browser
    finally:
        browser.quit()
