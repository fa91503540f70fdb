"""The tiny jobs that are explored, by name."""

from __future__ import annotations

from benchmarks.harness.graphs import chain_of, graph
from tests.exhaustive.world import Job

PAIR = chain_of("source", "sink")
CHAIN = chain_of("source", "middle", "sink")
MERGE = graph(("left", "right", "sink"), (-1, 0), (-1, 1), (0, 2), (1, 2), (2, -1))
ORDERED_SINK = graph(("left", "right", "sink"), (-1, 0), (-1, 1), (0, 2), (1, 2), (2, -1), ordered=(2,))
ORDERED_JOIN = graph(("left", "right", "join", "sink"), (-1, 0), (-1, 1), (0, 2), (1, 2), (2, 3), (3, -1), ordered=(2,))
DIAMOND = graph(("source", "left", "right", "join"), (-1, 0), (0, 1), (0, 2), (1, 3), (2, 3), (3, -1))
TRIANGLE = graph(("source", "middle", "join"), (-1, 0), (0, 1), (0, 2), (1, 2), (2, -1))
CELL = graph(("cell",), (-1, 0), (-1, 0), (0, -1), (0, -1))
CELL_BEFORE = graph(("cell", "sink"), (-1, 0), (0, 1), (0, -1), (1, -1))
"""Cells (docs/design/0036): one task reads partitions and writes to stores, and may send to another task as well."""

JOBS = {
    job.name: job
    for job in (
        Job("pair-two-crashes", PAIR, crashes=2),
        Job("pair-timer", PAIR, timers=True),
        Job("pair-zombie", PAIR, zombies=True),
        Job("pair-losses", PAIR, crashes=0, losses=2, hurries=1),
        Job("pair-loss-and-crash", PAIR, records=1, losses=1, hurries=1),
        Job("pair-checkpoint", PAIR, asks=1),
        Job("pair-two-checkpoints", PAIR, records=1, asks=2),
        Job("pair-checkpoint-two-crashes", PAIR, records=1, crashes=2, asks=1),
        Job("pair-orders-travel", PAIR, records=1, asks=1, travelling=True),
        Job("merge", MERGE, records=1),
        Job("merge-two-records", MERGE, crashes=0),
        Job("merge-ordered", ORDERED_SINK, records=1, marks=True, mortal=(1, 2)),
        Job("merge-ordered-checkpoint", ORDERED_SINK, records=1, crashes=0, asks=1),
        Job("join-ordered", ORDERED_JOIN, records=1, mortal=(2,)),
        Job("chain-two-crashes", CHAIN, records=1, crashes=2),
        Job("chain-checkpoint", CHAIN, records=1, mortal=(0, 1), asks=1),
        Job("chain-depth-1", CHAIN, depth=1),
        Job("chain-depth-1-rollback", CHAIN, records=1, depth=1, crashes=2),
        Job("chain-rollback-orders-travel", CHAIN, records=1, depth=1, crashes=2, mortal=(0, 1), travelling=True),
        Job("chain-betrayed", CHAIN, betrays=1),
        Job("pair-flush", PAIR, records=1, crashes=2, flush=True),
        Job("pair-flush-zombie", PAIR, records=1, zombies=True, flush=True),
        Job("chain-flush-depth-1", CHAIN, records=1, depth=1, crashes=2, mortal=(0, 1), flush=True),
        Job("pair-host", PAIR, hosts=((0, 1),)),
        Job("pair-host-cut-off", PAIR, records=1, hosts=((0, 1),), zombies=True),
        Job("pair-host-checkpoint", PAIR, records=1, hosts=((0, 1),), asks=1),
        Job("pair-two-hosts", PAIR, records=1, crashes=2, hosts=((0,), (1,)), travelling=True),
        Job("chain-host", CHAIN, records=1, hosts=((0, 1), (2,))),
        Job("chain-host-sink", CHAIN, records=1, hosts=((1, 2),)),
        Job("chain-host-cut-off", CHAIN, records=1, hosts=((0, 1),), zombies=True),
        Job("chain-host-depth-1", CHAIN, records=1, depth=1, hosts=((0, 1),)),
        Job("merge-host", MERGE, records=1, hosts=((0, 2),)),
        Job("cell-checkpoint", CELL, records=1, asks=1),
        Job("cell-zombie", CELL, records=1, zombies=True),
        Job("cell-before-a-sink", CELL_BEFORE, records=1),
        Job("cell-before-a-sink-two-crashes", CELL_BEFORE, records=1, crashes=2),
        Job("triangle", TRIANGLE, records=1),
        Job("diamond", DIAMOND, records=1, mortal=(1,)),
    )
}
