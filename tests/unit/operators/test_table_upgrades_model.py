"""Whatever of a graph of tables changes at an upgrade: each reader takes back what it received."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from operators.kinds.tables.sameness import same
from tests.members import examples
from tests.unit.operators.table_model import Model, another, folded, some_graph
from tests.unit.operators.versions import Version


@given(st.integers(0, 1 << 40))
@examples(60)
def test_tables_change_in_any_way(seed: int) -> None:
    check(Random(seed))


def check(chance: Random) -> None:
    graph = some_graph(chance)
    version, model, now = Version(graph.built), Model(graph), 0
    for _ in range(chance.choice([2, 2, 3])):
        for _ in range(chance.randrange(9)):
            version.out, model.out = {}, {}
            if chance.random() < 0.25:
                now += 20  # what was held before the first watermark waits from there
                version.give({"t": now - 10}).give({"t": now})
                model.release()
            else:
                record = {"k": chance.randrange(4), "v": chance.randrange(9)}
                version.give({**record, "t": now})
                model.give(record)
            ours, expected = (
                {sink: folded(out) for sink, out in job.out.items() if sink not in ("ts-out", "u-out")}
                for job in (version, model)
            )
            assert {sink: rows for sink, rows in ours.items() if rows} == {
                sink: rows for sink, rows in expected.items() if rows
            }
            streams = (job.out.get("ts-out", []) for job in (version, model))
            assert same(*(sorted(map(repr, stream)) for stream in streams))
        graph = another(graph, chance)
        version = version.becomes(Version(graph.built), allow_dropped=True)
        model.becomes(graph)
