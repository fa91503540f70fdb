"""`causal serve` of a job whose tasks are killed: every answer is of one checkpoint, and right."""

from __future__ import annotations

import json
import threading
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness.processes import kill
from benchmarks.harness.runs import sets
from tests.faults.conftest import Start
from tests.faults.dashboard import Dashboard
from tests.faults.job import PIPELINES, Job, causal, wait_for
from tests.faults.serving import Serving
from tests.faults.test_queries import COUNT, KEYS, assert_of_one_moment, model

RATE = 300


def kept_job(start: Start, directory: Path) -> Job:
    settings = sets(count=COUNT, rate=RATE, gate=directory / "gate", out=directory / "rows")
    return start(PIPELINES / "kept.py", *settings, "--checkpoint-interval", "0.3")


def moment_of(serving: Serving, key: int, arguments: str = "") -> tuple[Any, int]:
    """Return (epoch, elements seen) of a key, all of whose states must have seen the same elements."""
    answer = serving.state("keep", f"k{key}", arguments)
    state = {name: value for name, value in answer["state"].items() if name != "lately"}
    if "by_digit" in state and "dict" in state["by_digit"]:
        state["by_digit"] = {str(digit): count for digit, count in state["by_digit"]["dict"]}
    return answer["epoch"], assert_of_one_moment({**answer, "state": state}, key)


def shows(serving: Serving, key: int, count: int) -> bool:
    return moment_of(serving, key)[1] == count


class Asking(threading.Thread):
    """Asks for two keys in one request and for each of them, one request after the other, until `stop` is called."""

    def __init__(self, serving: Serving) -> None:
        super().__init__()
        self.counts: dict[int, set[tuple[int, int]]] = {}
        """Epoch → (key, elements seen) that answers of that epoch have shown."""
        self.answered, self.unanswered = 0, list[Any]()
        self.wrong: BaseException | None = None
        self._serving, self._stopped = serving, threading.Event()

    def run(self) -> None:
        try:
            while not self._stopped.is_set():
                status, content = self._serving.request("/state?get=keep/k0&get=keep/k1")
                if status != 200:
                    self.unanswered.append(content)
                    continue
                self.answered += 1
                for key, answer in enumerate(content["answers"]):
                    [task] = answer["tasks"]
                    seen = len(task["state"].get("numbers", ()))
                    self.counts.setdefault(content["epoch"], set()).add((key, seen))
                    epoch, seen = moment_of(self._serving, key)
                    self.counts.setdefault(epoch, set()).add((key, seen))
        except BaseException as problem:
            self.wrong = problem

    def stop(self) -> None:
        self._stopped.set()
        self.join()
        if self.wrong is not None:
            raise self.wrong


def test_answers_are_of_checkpoints_while_tasks_die_and_afterwards(start: Start, tmp_path: Path) -> None:
    job = kept_job(start, tmp_path)
    job.until_warm(records=50)
    with Serving(job.state) as serving:
        asking = Asking(serving)
        asking.start()
        for task in ("keep/0", "numbers/0", "keep/1"):
            dying = job.pid_of(task)
            kill(dying)
            job.until_replaced(dying)
            live = serving.state("keep", "k1", "?as_of=live")
            assert live["incarnation"] >= 1 and live["state"]["total"]["n"] > 0
        job.until_written(COUNT - 1)  # the last one waits for the gate, so nothing changes any more
        for key in (0, KEYS - 1):
            count = COUNT // KEYS - (key == KEYS - 1)
            wait_for("a checkpoint contains all", partial(shows, serving, key, count))
            assert moment_of(serving, key, "?as_of=live")[1] == count
        asking.stop()
        assert asking.answered > 10 and not asking.unanswered, asking.unanswered[:3]
        for epoch, seen in asking.counts.items():
            assert len(dict(seen)) == len(seen), f"two answers of epoch {epoch} differ: {seen}"
            if len(seen) == 2:
                (_, first), (_, second) = sorted(seen)
                assert 0 <= first - second <= 1, "both keys are of one cut: their elements alternate"
        (tmp_path / "gate").touch()
        report = job.finish_well()
        assert len(report["recoveries"]) >= 3
        epoch, last = moment_of(serving, 0)
        assert last == COUNT // KEYS and model(0, last)["total"]["n"] == last
        assert serving.request("/state/keep/k0?as_of=live")[0] == 409
    with Serving(job.state) as later:
        assert moment_of(later, 0) == (epoch, last), "a job that has ended is served from its directory"
        pages, after = list[str](), ""
        while True:
            page = later.get(f"/state/keep?limit=2{after}")
            pages += [each["key"] for each in page["keys"]]
            if page["next"] is None:
                break
            after = f"&after={page['next']}"
        assert pages == [f"k{key}" for key in range(KEYS)] and page["epoch"] == epoch
        assert [each["key"] for each in later.get("/state/keep?prefix=k3&values=0")["keys"]] == ["k3"]
        assert [each["key"] for each in later.get("/state/keep?from=k1&to=k3&values=0")["keys"]] == ["k1", "k2"]
    with Dashboard(job.state) as dashboard:

        def answered() -> bool:
            status, _, body = dashboard.request("GET", "/state/keep/k0")
            assert status in (200, 503), body
            return status == 200 and json.loads(body)["epoch"] == epoch

        wait_for("the dashboard answers the same questions", answered)
        assert dashboard.request("GET", "/state/keep/k0", {})[0] == 401
        assert dashboard.get("/api/job")["job"] == "kept"


def test_what_cannot_be_answered_has_one_line_and_its_status(start: Start, tmp_path: Path) -> None:
    job = kept_job(start, tmp_path)
    job.until_warm(records=50)
    assert causal(tmp_path, "savepoint", "--stop", "--state-dir", str(job.state)) == (0, "")
    assert job.finish()[0] == 0
    token = tmp_path / "token"
    with Serving(job.state, "--token-file", "token") as serving:
        assert token.stat().st_mode & 0o777 == 0o600
        assert serving.request("/state", {})[0] == 401, "the token is in the file, not in what was printed"
        serving.ours = {"x-causal-token": token.read_text().strip()}
        overview = serving.get("/state")
        assert overview["operators"] == [{"operator": "keep", "keyed": True, "tasks": ["keep/0", "keep/1"]}]
        [savepoint] = [each for each in overview["kept"] if each["savepoint"]]
        whole = moment_of(serving, 0)
        assert moment_of(serving, 0, f"?as_of={savepoint['epoch']}") == whole and whole[1] > 0
        for path, status, line in [
            ("/state/kep/k0", 404, "operator 'kep' does not exist; the operators are keep"),
            ("/state/numbers/null", 404, "operator 'numbers' keeps no state that is served; those that do are keep"),
            ("/windows/keep/k0", 404, "operator 'keep' has no windows by key"),
            ("/state/keep/%7B%22a%22:1%7D", 400, "the value of an object must be a string"),
            ("/state/keep/k0?as_of=999999", 410, "nothing is kept of epoch 999999; the epochs that are kept are"),
            ("/state/keep/k0?as_of=live", 409, "is not running; use as_of=checkpoint"),
            ("/elsewhere", 404, "this address does not exist"),
        ]:
            answered, content = serving.request(path)
            assert answered == status and line in content["problem"], content
        assert serving.get("/state/keep/absent")["found"] is False
        assert serving.request("/state/keep/k0", {"Authorization": "Bearer wrong"})[0] == 401
        assert serving.request("/state/keep/k0", {**serving.ours, "Host": "evil.example"})[0] == 403
        assert serving.request("/state/keep/k0", method="POST")[0] == 405
        port = str(serving.port)
        for arguments, expected in [
            (("--port", port), f"--port {port} cannot be used: Address already in use; use another port"),
            (("--host", "203.0.113.7"), "--host 203.0.113.7 cannot be used"),
            (("--operator", "kep"), "operator 'kep' does not exist"),
            (("--token-file", "short"), "does not contain a token"),
            (("--token-file", "open"), "can be used by others; run: chmod 600"),
        ]:
            for name, mode in (("short", 0o600), ("open", 0o644)):
                (tmp_path / name).write_text("x" * (5 if name == "short" else 20))
                (tmp_path / name).chmod(mode)
            assert_refused(tmp_path, job.state, arguments, expected)


def assert_refused(directory: Path, job: Path, arguments: tuple[str, ...], expected: str) -> None:
    status, said = causal(directory, "serve", "--state-dir", str(job), *arguments)
    assert status == 2 and expected in said and "\n" not in said, said
