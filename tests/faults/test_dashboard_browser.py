"""The dashboard in a real browser, on a real job that the browser breaks: its rows stay exactly-once.

With `CAUSAL_SCREENSHOTS=docs/assets` the pictures of the guide are written there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.browser import MISSING, browsing, present
from benchmarks.harness.processes import AGENT, SUPERVISOR, server
from benchmarks.harness.runs import sets
from tests.faults.conftest import HeldChain, Start
from tests.faults.dashboard import Dashboard
from tests.faults.job import PIPELINES, wait_for

pytest.importorskip("selenium.webdriver", reason="the browser is driven by Selenium (extra `dev`)")
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from standby.blueprint import Blueprint
from tests.faults.browser_page import Page
from tests.faults.recorded_jobs import MARKUP, recorded_shop, write_long_recording
from tests.faults.test_dashboard import ended_job, write_view
from tests.unit.deploy.test_ui_graph import seen, topology

pytestmark = pytest.mark.skipif(not present(), reason=MISSING)

StartChain = Callable[..., HeldChain]
COUNT = 1_500
"""The elements of each source: they come until the pictures are taken."""


@pytest.fixture(scope="module")
def started_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The browser of all tests: starting one takes more of the processor than a job."""
    with browsing(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def browser(started_browser: Any) -> Iterator[Any]:
    """The browser with a new tab in front, and nothing on its console."""
    [blank] = started_browser.window_handles
    started_browser.switch_to.new_window("tab")
    started_browser.get_log("browser")
    yield started_browser
    started_browser.close()
    started_browser.switch_to.window(blank)


def colour(page: Page) -> str:
    return str(page.browser.execute_script("return getComputedStyle(document.body).backgroundColor"))


def test_a_user_watches_a_job_and_breaks_it(start_chain: StartChain, browser: Any) -> None:
    chain = start_chain(count=COUNT)
    chain.job.until_warm()
    with Dashboard(chain.job.state) as dashboard:
        page = Page(browser, dashboard.url)
        page.until("running", "#state")
        page.until("score/0")
        assert dashboard.token not in browser.current_url
        assert {each.text for each in browser.find_elements(By.CSS_SELECTOR, "svg .strong")} == {
            "shop", "web", "score", "totals", "ledger", "out"
        }  # fmt: skip

        page.open("Break it")
        page.press("Kill score/0")
        page.until("Kill score/0? This is a kill -9 in the running job", "#question")
        page.press("Cancel")
        wait_for("the question is gone", lambda: not page.text("#question"))
        assert not page.text("#done") and "live again after" not in page.text()
        page.kill("score/0")
        page.until("killed task score/0", "#done")
        page.until("score/0: live again after")
        page.until("rows seen before the kill: 0 changed, 0 missing.", "#output")
        page.kill("w1")  # a standby, such as w12
        page.until("killed standby", "#done")

        supervisor = chain.job.server(SUPERVISOR)
        page.kill("the supervisor")
        page.until("killed the supervisor", "#done")
        wait_for("there is another", lambda: server(chain.job.root, SUPERVISOR) not in (None, supervisor))
        chain.until_checkpoint(chain.until_checkpoint(0))
        page.until("as of 0 s ago", "#age")
        page.until("running", "#state")

        agent = chain.job.server(AGENT)
        page.kill("the agent")
        page.until("killed the agent", "#done")
        wait_for("there is another", lambda: server(chain.job.root, AGENT) not in (None, agent))
        chain.job.until_warm()

        page.open("Recoveries")
        page.until("(standby): killed on request: by a command, by this page, or to move the task to another host.")
        page.until("elements replayed")
        page.picture("recoveries")
        page.open("Graph")
        page.until("records/s")
        page.picture("graph")
        page.follow("score/0")
        page.until("state at checkpoint")
        for view, text in (
            ("Checkpoints", "By task, the slowest first"),
            ("State", "key, or how keys begin"),
            ("Dead letters", "No dead letters."),
            ("Settings", "checkpoint_interval_s"),
            ("Hosts", "only on this machine"),
        ):
            page.open(view)
            page.until(text)
            if view == "Checkpoints":
                page.picture("checkpoints")

        page.open("State")
        browser.find_element(By.NAME, "operator").send_keys("score")
        browser.find_element(By.NAME, "key").send_keys("7", Keys.ENTER)
        page.until("as of checkpoint")
        page.until('"hash"')
        browser.switch_to.active_element.send_keys(Keys.TAB, Keys.TAB)
        page.picture("state")
        assert browser.find_element(By.NAME, "key").get_attribute("value") == "7"

        assert chain.finish_exactly()["recoveries"]
        page.open("Graph")
        page.until("finished", "#state")
        page.open("Break it")
        page.until("there is nothing to break")
        assert page.problems() == []

        status = chain.job.state / "status.json"
        written = status.read_text()
        status.write_text("{")
        page.until("status.json is damaged", "#problem")
        status.write_text(written)
        wait_for("the line is gone", lambda: not page.text("#problem"))


@pytest.mark.campaign
def test_it_can_be_used_with_the_keyboard_in_the_dark_and_on_a_narrow_screen(
    start_chain: StartChain, browser: Any
) -> None:
    chain = start_chain("--standbys", "2", count=COUNT)
    chain.job.until_warm()
    with Dashboard(chain.job.state) as dashboard:
        page = Page(browser, dashboard.url)
        page.until("score/0")

        def focused() -> Any:
            return browser.switch_to.active_element

        keys = browser.find_element(By.TAG_NAME, "body")
        keys.send_keys(Keys.TAB, Keys.ENTER)  # to the content
        assert focused().get_attribute("id") == "main"
        for _ in range(12):
            if focused().text == "Recoveries":
                break
            focused().send_keys(Keys.SHIFT, Keys.TAB)
        focused().send_keys(Keys.ENTER)
        page.until("No process of a task has died.")
        page.until("Recoveries", "nav a[aria-current]")
        assert focused().text == "Recoveries", "the focus stays where it was while the page is drawn again"

        light = colour(page)
        browser.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
        )
        assert colour(page) != light
        page.open("Graph")
        page.until("records/s")
        page.picture("dark")

        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": False},
        )
        for view in ("Graph", "Recoveries", "Checkpoints", "State", "Dead letters", "Settings", "Hosts", "Break it"):
            page.open(view)
            assert not page.wide(), view
            if view == "Graph":
                page.until("records/s")
                page.picture("narrow")
    assert chain.finish_exactly()["recoveries"] == [], "watching a job does nothing to it"


@pytest.mark.campaign
def test_the_page_of_a_task_shows_the_keys_that_take_its_time(start: Start, browser: Any, tmp_path: Path) -> None:
    slow = ",".join(str(i) for i in range(3, 500, 7))  # the records of key 3
    settings = sets(slow="process", at=slow, sleep_s=0.3, count=4000, out=tmp_path / "out.db")
    job = start(PIPELINES / "long_events.py", *settings)
    job.until_warm()
    with Dashboard(job.state) as dashboard:
        page = Page(browser, dashboard.url)
        page.until("count/0")
        page.follow("count/0")
        page.until("Keys by share of the task's time, sampled")
        wait_for("key 3 is the first", lambda: page.text("[aria-label='Hottest keys'] td").startswith("3\n"))
        page.picture("task")
        assert page.problems() == []
    job.interrupt()
    assert job.finish()[0] == 130


@pytest.mark.campaign
def test_a_job_that_stopped_at_a_savepoint_looks_stopped_and_a_slow_dashboard_slow(
    browser: Any, tmp_path: Path
) -> None:
    job = ended_job(tmp_path)
    Blueprint(topology()).save(job)
    write_view(job, json.dumps(seen(ended={"status": 0, "reason": "stopped at savepoint 7"})))
    with Dashboard(job) as dashboard:
        page = Page(browser, dashboard.url)
        page.until("stopped at savepoint 7", "#state")
        page.until("Stopped at savepoint 7: causal run --resume continues there", "#says")
        assert page.text("svg .strong").split("\n") == ["orders +2", "minutes +1", "out", "dead-letters"]
        titles = browser.execute_script("return [...document.querySelectorAll('svg title')].map(t => t.textContent)")
        assert any("orders › clean › time" in title for title in titles)
        assert "down" not in page.text("td .badge") and "records/s on average" in page.text(), "no rate is one of now"

        def edges() -> int:
            return len(browser.find_elements(By.CSS_SELECTOR, "path.edge"))

        assert edges() == 2
        page.press("† Show the 3 edges to the dead letters")
        wait_for("all edges are drawn", lambda: edges() == 5)
        page.press("Hide the 3 edges")
        wait_for("they are hidden", lambda: edges() == 2)

        page.open("State")
        names = [each.text for each in browser.find_elements(By.CSS_SELECTOR, "select[name=operator] option")]
        assert "dead-letters" not in names and names[0] == "minutes", "it opens on an operator that is no end"

        dashboard.hang(True)
        page.until("No answer from causal ui for ", "#problem")
        assert "has ended" not in page.text("#problem"), "it lives"
        dashboard.hang(False)
        wait_for("it answers again", lambda: not page.text("#problem"))
        assert page.problems() == []


def chosen_in_a_lineage(page: Page, browser: Any) -> None:
    """Choose the last event in the drawing with the keyboard, and ask for the state of its key now."""
    page.until("Follow a box to see all of it, and what led there.")
    page.until("≤ an upper bound The row comes from at most")
    boxes = browser.find_elements(By.CSS_SELECTOR, ".lineage a.event")
    browser.execute_script("arguments[0].focus()", boxes[-1])
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    page.until("determinants of this event")
    assert MARKUP in page.text("section") and not browser.find_elements(By.CSS_SELECTOR, "main img")
    page.press("Show it")
    page.until('"total"')


def test_a_user_finds_an_epoch_a_failure_and_a_row_of_a_recorded_job(browser: Any, tmp_path: Path) -> None:
    job = recorded_shop(tmp_path)
    with Dashboard(job) as dashboard:
        browser.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardSanitizedWrite"]})
        page = Page(browser, dashboard.url)
        page.open("Replay")
        page.until("kept checkpoint: a replay begins there")
        bars = browser.find_elements(By.CSS_SELECTOR, "a.bar")
        axis = dashboard.get("/api/recorded")
        assert len(bars) == len(axis["bars"])

        browser.execute_script("arguments[0].focus()", bars[0])
        browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT, Keys.ENTER)
        page.until("Epoch 1 ")
        page.until("causal replay job --epoch 1")
        page.press("Copy")
        page.until("Copied: causal replay job --epoch 1", "#done")
        page.follow("Epoch after")
        page.until("Epoch 2 ")
        page.picture("replay-epoch")
        browser.back()
        page.until("Epoch 1 ")
        page.follow("Close")

        page.until("killed on request")
        browser.find_element(By.CSS_SELECTOR, "[aria-label='Failures'] a").click()
        page.until("causal replay job --task total/0 --at-crash --pdb")
        page.follow("Close")

        page.until("Where does a row come from?")
        browser.find_element(By.NAME, "text").send_keys("<img")
        page.press("Show the newest rows")
        page.until(MARKUP)
        assert browser.title == "shop: finished" and not browser.find_elements(By.CSS_SELECTOR, "main img")
        position = dashboard.get("/api/rows?text=%3Cimg")["rows"][0]["position"]
        page.follow(f"out/0:{position}")
        page.until(f"causal replay job --row out/0:{position} --pdb")
        page.press("Find out what it comes from")
        page.until("  after   {")
        chosen_in_a_lineage(page, browser)
        browser.find_element(By.NAME, "place").send_keys("999999", Keys.ENTER)
        page.until("contains no epoch 999999; it has epochs 0 to")
        assert [line for line in page.problems() if "409" not in line] == []

        page.open("Dead letters")
        page.until("an order that cannot be right")
        page.until("how it came")
        browser.find_element(By.CSS_SELECTOR, "td a").click()
        page.until("causal replay job --row dead-letters/0:")
        page.press("Find out what it comes from")
        page.until("Follow a box to see all of it, and what led there.")
        browser.execute_script("document.querySelector('.lineage').scrollIntoView()")
        page.picture("lineage")


def test_a_day_of_epochs_is_drawn_with_few_elements_and_can_be_zoomed(browser: Any, tmp_path: Path) -> None:
    job = ended_job(tmp_path)
    write_long_recording(job, 10_000)
    with Dashboard(job) as dashboard:
        page = Page(browser, dashboard.url)
        page.open("Replay")
        page.until("several epochs: follow the bar")
        page.until("the code of version 1 again")

        def elements() -> int:
            return len(browser.find_elements(By.CSS_SELECTOR, "main *"))

        assert elements() < 2_500
        page.picture("replay")
        browser.find_elements(By.CSS_SELECTOR, "a.bar")[20].click()
        page.until("an epoch\n")
        assert elements() < 2_500 and "-" in browser.current_url.partition("#/replay/")[2]
        page.follow("Later")
        page.follow("Zoom out")
        page.follow("All")
        page.until("several epochs: follow the bar")
        assert not page.wide() and page.problems() == []
