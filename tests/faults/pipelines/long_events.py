"""Numbered rows, of which a few take longer than the silence that counts as death.

`--set slow=` names the place: map, process, call, timer, finish, import, compute or gil.  `--set sleep_s=SECONDS`;
`--set at=I,J` the numbers of the slow records.  With `compute` and `gil` C code holds the interpreter's lock; with
`gil` it waits, and only once: the file `--set once=PATH` remembers that it has.
"""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

pipeline = Pipeline("long-events")
settings = pipeline.settings
SLOW, SLEEP_S = settings["slow"], float(settings.get("sleep_s", 2))
AT = [int(text) for text in settings.get("at", "20,40").split(",")]
COUNT = int(settings.get("count", 60))
ONCE = Path(settings.get("once", "once"))


def linger() -> None:
    time.sleep(SLEEP_S)  # the line that is reported to the user


def double(record: dict[str, int]) -> dict[str, int]:
    if SLOW == "map" and record["i"] in AT:
        linger()
    return {**record, "v": record["i"] * 2}


class Count(Operator):
    def process(self, record: Any, ctx: Any) -> Any:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        if record["i"] in AT:
            self._linger(ctx)
        if SLOW == "timer" and n == 1:
            ctx.set_timer(ctx.now() + 0.2, "late")
        yield {"i": record["i"], "n": n, "v": record["v"], "dice": ctx.random.random()}

    def _linger(self, ctx: Any) -> None:
        if SLOW == "process":
            linger()
        elif SLOW == "call":
            ctx.call(linger)
        elif SLOW == "gil" and not ONCE.exists():
            ONCE.touch()
            ctypes.PyDLL(None).usleep(int(SLEEP_S * 1e6))
        elif SLOW == "compute":
            sum(range(100_000_000))  # one C loop, which lets no other thread run

    def on_timer(self, name: str, ctx: Any) -> Any:
        if ctx.key == 0:
            linger()

    def finish(self, ctx: Any) -> Any:
        if SLOW == "finish" and ctx.key == 0:
            linger()


if SLOW == "import":
    linger()
(
    pipeline.source("numbers", GeneratedSource(lambda p, i: {"i": i, "k": i % 7}, COUNT, rate=40))
    .map("double", double)
    .key_by(lambda record: record["k"])
    .process("count", Count())
    .sink("out", SqliteSink(settings.get("out", "out.db")))
)
