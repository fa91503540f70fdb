"""Quix Streams: a keyed count with `processing_guarantee="exactly-once"`, state in RocksDB with its changelog topic.

Each process reads the partitions that its consumer group gives it; a commit every `interval_s` makes rows visible.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from quixstreams import Application, State

from benchmarks.peers.programs import inputs
from benchmarks.peers.programs.on_confluent import WORKER, run_workers


def work(place: Path) -> None:
    """Count until the process is ended."""
    asked = inputs.asked(place)
    app = Application(
        asked["servers"],
        consumer_group=asked["output"],
        auto_offset_reset="earliest",
        commit_interval=asked["interval_s"],
        processing_guarantee="exactly-once",
        state_dir=place / f"state-{os.getpid()}",
        loglevel="WARNING",
    )

    def counted(event: dict[str, Any], state: State) -> list[Any]:
        inputs.began(place)
        n = state.get("n", 0) + 1
        state.set("n", n)
        return [event["key"], n]

    rows = app.dataframe(app.topic(asked["topic"])).apply(counted, stateful=True)
    rows.to_topic(app.topic(asked["output"]))
    app.run()


def main() -> int:
    """Run it, or one of its processes."""
    place = Path(sys.argv[2])
    if sys.argv[1] == WORKER:
        work(place)
        return 0
    inputs.finished(place, "quixstreams", run_workers(__spec__.name, place, inputs.asked(place)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
