"""Writes reference tables from the code that they describe, into every page that has a place for one.

python docs/tables.py            # rewrite the pages; a test fails while they are not up to date

The descriptions are docstrings and help texts of the code; figures that no program prints again are in
`docs/benchmarks/*.csv`.
"""

from __future__ import annotations

import ast
import csv
import inspect
import re
import struct
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.report import appendix  # noqa: E402
from causal import determinants, errors  # noqa: E402
from causal.channels import echo_headers, output_queue, wire  # noqa: E402
from causal.config import JobConfig  # noqa: E402
from causal.logs import deltas as delta_encoding  # noqa: E402
from causal.records import batch  # noqa: E402
from causal.topology import FULL_DEPTH  # noqa: E402
from deploy.jobs.resuming import IDENTITY  # noqa: E402
from deploy.monitoring import metrics as exposition  # noqa: E402
from examples.nexmark.queries import BUILT  # noqa: E402
from operators import (  # noqa: E402
    Context,
    CountWindow,
    Global,
    KeyedStream,
    ListState,
    MapState,
    Pipeline,
    ReducingState,
    Session,
    Sliding,
    Table,
    Tumbling,
    ValueState,
)
from operators.builder.pipeline import Grouped  # noqa: E402
from operators.sinks import (  # noqa: E402
    CallbackSink,
    ConsoleSink,
    JsonLinesSink,
    KafkaSink,
    NatsSink,
    PostgresSink,
    RedisSink,
    SqliteSink,
    WebhookSink,
)
from operators.sinks.lake.delta_sink import DeltaSink  # noqa: E402
from operators.sinks.lake.iceberg_sink import IcebergSink  # noqa: E402
from operators.sinks.parquet.parquet_sink import ParquetSink  # noqa: E402

PAGES = (
    "docs/design/0023-house.md",
    "docs/determinants.md",
    "docs/guide/change.md",
    "docs/guide/metrics.md",
    "docs/guide/sinks.md",
    "docs/guide/state.md",
    "docs/guide/tables.md",
    "docs/guide/time.md",
    "docs/guide/windows.md",
    "docs/nexmark.md",
    "docs/operations.md",
    "docs/operators.md",
    "docs/performance.md",
    "docs/reliability.md",
    "docs/sinks.md",
    "docs/wire.md",
)
_PLACE = re.compile(r"(<!-- (\w+): made by docs/tables.py -->\n).*?(<!-- end -->)", re.DOTALL)
_MEASURED = re.compile(r"(<!-- figures of ([\w-]+): made by docs/tables.py -->\n\n).*?(\n<!-- end -->)", re.DOTALL)
_ENTRY = re.compile(r"Entry: (`[^`]+`(?:–`[^`]+`)?), (.*): ([^:]*)\.$")
_ATTRIBUTE = re.compile(r"^\s+(\w+): (.*)$")

SINKS = (
    SqliteSink, JsonLinesSink, ParquetSink, DeltaSink, IcebergSink, PostgresSink, RedisSink, KafkaSink, NatsSink,
    CallbackSink, WebhookSink,
    ConsoleSink,
)  # fmt: skip
_MORE = {
    "guarantee": "guarantees.md",
    "determinant_flush": "design/0012-stable-determinants.md",
    "durability": "durability.md",
    "standbys": "recovery.md#hot-standbys",
    "hidden_nondeterminism": "guide/determinism.md",
    "state": "guide/state.md#more-than-memory",
    "inflight_disk_bytes_max": "design/0021-bounds.md",
    "heartbeat_timeout_ms": "#when-something-takes-long",
    "listen": "guide/hosts.md",
    "on": "guide/spark_cluster.md#on-a-spark-cluster",
    "verify_replay": "operators.md#checking-determinism",
    "record": "guide/recording.md",
}
"""The place with more about a setting."""

_CLASSES = {"pipeline": Pipeline, "": KeyedStream, "table": Table, "grouped": Grouped}
_PREFIXES = {"aggregate": "table.group_by(name, fn)"}
_OPERATORS = (
    ("pipeline", "source"),
    *(("", name) for name in ("map", "filter", "flat_map", "key_by", "union", "process", "reduce", "count")),
    *(("", name) for name in ("watermarks", "timed", "side", "window", "join", "window_join", "join_table")),
    *(("", name) for name in ("broadcast", "table", "aggregate_table", "window_table")),
    *(("table", name) for name in ("filter", "map_values")),
    ("grouped", "aggregate"),
    *(("table", name) for name in ("join", "suppress", "revisions", "to_stream")),
    *(("", name) for name in ("call", "sink")),
)
"""The operators of the table: what they are called on, and their names."""
UNSHOWN = ("parallelism", "host")
"""The arguments that are the same for all operators."""
_UNSET = type("Unset", (), {"__repr__": lambda self: "…"})()
"""The text for a default that is a mark alone."""
_LOGS = re.compile(r"^Logs(?: with (.*?))?: ((?:`\w+`|every).*?)\.$", re.MULTILINE)

EXAMPLES: tuple[tuple[str, determinants.Determinant], ...] = (
    ("channel 0, 1 element", determinants.Order(0, 1)),
    ("channel 31, 1 element", determinants.Order(31, 1)),
    ("channel 32, 1 element", determinants.Order(32, 1)),
    ("channel 126, 300 elements", determinants.Order(126, 300)),
    ("channel 127, 1 element", determinants.Order(127, 1)),
    ("channel 65536, 128 elements", determinants.Order(65_536, 128)),
    ("1,000 ns", determinants.Clock(1_000)),
    ("1,060 ns", determinants.Clock(1_060)),
    ("1,050 ns", determinants.Timer(1_050)),
    ("seed 00 01 … 0f", determinants.Random(bytes(range(16)))),
    ("of operator 2, ends at 1,040 ns, elements 10–14 and 20", determinants.Window(2, 1_040, ((10, 5), (20, 1)))),
    ("answer `ok`", determinants.Call(b"ok")),
    ("7", determinants.Barrier(7)),
    ("of 300 events", determinants.Run(300)),
    ("`ok` to request 300 of operator 1", determinants.Answer(1, 300, b"ok")),
)
"""The entries of one log, each with its description."""


def grid(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    names = list(head)
    cells = [names, ["---"] * len(names), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def _line(docstring: str | None) -> str:
    """Return the first paragraph of a docstring in one line, as part of a sentence."""
    return " ".join((docstring or "").split("\n\n")[0].split()).removesuffix(".")


def _field_docstrings(kind: type) -> dict[str, str]:
    """Return the docstring of each annotated field of a class."""
    (body,) = (each for each in ast.parse(inspect.getsource(kind)).body if isinstance(each, ast.ClassDef))
    docstrings = {}
    for before, behind in zip(body.body, body.body[1:], strict=False):
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name):
            if isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant):
                docstrings[before.target.id] = str(behind.value.value)
    return docstrings


def _attributes(kind: type) -> dict[str, str]:
    """Return the descriptions in the section Attributes of a class."""
    _, _, section = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")
    lines = (_ATTRIBUTE.match(line) for line in section.split("\n\n")[0].splitlines())
    return {line[1]: line[2].removesuffix(".") for line in lines if line}


def _columns(module: ModuleType) -> list[list[str]]:
    """Return the indented table of a module's docstring: columns are two blanks apart, long cells continue below."""
    rows: list[list[str]] = []
    starts: list[int] = []
    for line in (module.__doc__ or "").splitlines():
        if line.startswith("    ") and line[4] != " ":
            cells = [(each.start(), each[0]) for each in re.finditer(r"\S+(?: \S+)*", line)]
            if not rows:
                starts = [start for start, _ in cells]
            row = [""] * len(starts)
            for start, cell in cells:
                row[min(range(len(starts)), key=lambda at: abs(starts[at] - start))] = cell
            rows.append(row)
        elif rows and line.startswith("     "):
            rows[-1][-1] += f" {line.strip()}"
    return rows


def settings() -> str:
    """Return the settings of a job."""
    meanings = _field_docstrings(JobConfig)
    rows = []
    for each in fields(JobConfig):
        if each.name in IDENTITY:
            continue
        default = "" if each.default is MISSING else each.default
        shown = "full" if each.name == "sharing_depth" and default == FULL_DEPTH else str(default) or "–"
        meaning = _line(meanings[each.name])
        more = f" ([more]({_MORE[each.name]}))" if each.name in _MORE else ""
        rows.append([f"`{each.name}`", f"`{shown}`" if isinstance(default, str) and default else shown, meaning + more])
    return grid(["setting", "default", "meaning"], rows)


def metrics() -> str:
    """Return the metrics of a job."""
    rows = []
    for family in exposition.described():
        name = family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")
        names = list(family.samples[0].labels) if family.type == "info" else family._labelnames  # type: ignore[attr-defined]
        labels = ", ".join(label for label in names if label != "job")
        rows.append([f"`{name}`", family.type, labels, _line(family.documentation)])
    return grid(["metric", "kind", "labels", "meaning"], rows)


def alerts() -> str:
    """Return the alerts, with what to do."""
    groups = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    return grid(["alert", "what to do"], [[f"`{rule['alert']}`", rule["annotations"]["action"]] for rule in rules])


def header() -> str:
    """Return the fields of a frame's header."""
    meanings = {"magic": f"`{wire.MAGIC.decode()}`", "version": str(wire.VERSION), **_attributes(wire.Header)}
    rows, offset = [], 0
    for name, code in wire.LAYOUT.items():
        size = struct.calcsize(f"<{code}")
        rows.append([str(offset), str(size), name, meanings[name]])
        offset += size
    return grid(["offset", "bytes", "field", "meaning"], rows)


def kinds() -> str:
    """Return the kinds of frames."""
    rows = []
    for name, direction, body in _columns(wire):
        number = getattr(wire, name)
        rows.append([name, str(number), str(wire.KINDS[number]), direction, body])
    return grid(["kind", "number", "parts", "direction", "body"], rows)


def deltas() -> str:
    """Return the bytes of deltas and dependencies."""
    return grid(["first byte", "then", "means"], _columns(delta_encoding))


def chunks() -> str:
    """Return the kinds of chunks."""
    rows = [[name, str(getattr(batch, name)), *rest] for name, *rest in _columns(batch)]
    return grid(["chunk", "number", "count", "body"], rows)


def echoes() -> str:
    """Return the fields of the headers of ECHO and ECHOED: each attribute is found by a value that no other one has."""
    packed = (
        (echo_headers.EchoHeader, echo_headers.EchoHeader(2, 3, 4, 5, 6, 7, 8, True, 9)),
        (echo_headers.EchoedHeader, echo_headers.EchoedHeader(2, 3, True, 4)),
    )
    columns = []
    for kind, values in packed:
        parts = wire.KINDS[wire.ECHO if kind is echo_headers.EchoHeader else wire.ECHOED]
        fields_of = wire.read_header([values.pack(0), *[b""] * (parts - 1)], 0)
        places = {getattr(fields_of, name): name for name in wire.LAYOUT if name not in ("magic", "version", "kind")}
        meanings = _attributes(kind)
        columns.append({places[int(value)]: f"{name}: {meanings[name]}" for name, value in values._asdict().items()})
    used = [name for name in wire.LAYOUT if any(name in column for column in columns)]
    return grid(["field", "in ECHO", "in ECHOED"], [[name, *(c.get(name, "") for c in columns)] for name in used])


def entries() -> str:
    """The kinds of determinants, and how the entries of each are written."""
    rows = []
    for kind in get_args(determinants.Determinant):
        meaning, *rest = inspect.cleandoc(kind.__doc__).split("\n\n")
        described = " ".join(" ".join(rest).split()).replace(" Entry: ", "\nEntry: ").splitlines()
        for number, entry in enumerate(described):
            parsed = _ENTRY.match(entry)
            assert parsed is not None, f"{kind.__name__} has an entry without tag, fields or bytes: {entry}"
            rows.append([kind.kind, parsed[1], parsed[2], parsed[3], "" if number else _line(meaning)])
    return grid(["kind", "tag", "fields", "bytes", "meaning"], rows)


def examples() -> str:
    """Return one log, entry by entry."""
    codec = determinants.DeterminantCodec()
    rows = [[f"{example.kind}, {text}", f"`{codec.encode(example).hex(' ')}`"] for text, example in EXAMPLES]
    return grid(["entry", "bytes"], rows)


def context() -> str:
    """Return the attributes and methods of `ctx`, with what each logs."""
    rows = [[f"`{name}`", meaning, "–"] for name, meaning in _attributes(Context).items()]
    members = {name: member for base in reversed(Context.__mro__) for name, member in vars(base).items()}
    for name, member in members.items():
        docstring = inspect.cleandoc(member.__doc__ or "")
        logs = re.search(r"^Logs: (.*?)\.$", docstring, re.MULTILINE)
        if logs is not None:
            call = "" if isinstance(member, property) else _call(member)
            rows.append([f"`{name}{call}`", _line(docstring), logs[1]])
    return grid(["`ctx.` (`Context`)", "what it is", "log"], rows)


def _columns_of(docstring: str) -> tuple[dict[str, str], str]:
    """Return what an operator logs, by the option with which it does ("": always), and its state."""
    joined = re.sub(r"\n(?!Logs|State|\n)", " ", docstring)
    logs = {option or "": text for option, text in _LOGS.findall(joined)}
    state = re.search(r"^State: (.*?)\.$", joined, re.MULTILINE)
    return logs, state[1] if state else "–"


def operators() -> str:
    """Return the operators: what each emits, logs and keeps."""
    rows = []
    for place, name in _OPERATORS:
        member = getattr(_CLASSES[place], name)
        docstring = inspect.cleandoc(member.__doc__)
        logs, state = _columns_of(docstring)
        call = f"{_PREFIXES.get(name, place)}.{name}"
        rows.append([f"`{call}{_call(member, UNSHOWN)}`", _line(docstring), logs.pop("", "–"), state])
        rows += [[f"`{call}` with {option}", "", text, ""] for option, text in logs.items()]
    return grid(["call", "what it does", "logs", "state"], rows)


def failures() -> str:
    """Return the errors that end a job, with what to do."""
    rows = []
    for kind in vars(errors).values():
        fix = re.search(r"^Fix: (.*?)\.$", inspect.cleandoc(getattr(kind, "__doc__", None) or ""), re.M | re.S)
        if fix is not None:
            rows.append([f"`{kind.__name__}`", _line(kind.__doc__), " ".join(fix[1].split())])
    return grid(["error", "what happened", "what to do"], rows)


def limits() -> str:
    """Return the bounds of what travels."""
    config = JobConfig("", "", "")
    gathered = "payload gathered into one frame while the peer does not keep up, or when it is sent again"
    rows = (
        ("frame, all parts; also `plain_bytes`", f"{wire.FRAME_BYTES_MAX >> 20} MiB"),
        ("what an LZ4 block may claim", f"{determinants.LZ4_RATIO_MAX} × its length"),
        ("a chunk: what one batch was made into for one channel", f"{output_queue.CHUNK_BYTES_MAX >> 20} MiB"),
        ("a record, encoded", f"`record_bytes_max` ({config.record_bytes_max >> 20} MiB)"),
        ("deltas in a frame, dependencies in a frame", f"{delta_encoding.DELTAS_PER_FRAME_MAX:,}"),
        (gathered, f"{output_queue.FRAME_BYTES_TARGET >> 10} KiB, or one chunk"),
        (
            "bytes outstanding without credit",
            f"`channel_window_bytes` ({config.channel_window_bytes >> 20} MiB) and one frame",
        ),
    )
    return grid(["limit", "value"], rows)


def states() -> str:
    """Return the kinds of declared state."""
    kinds_of_state = (ValueState, ListState, MapState, ReducingState)
    rows = []
    for kind in kinds_of_state:
        text = " ".join(inspect.cleandoc(kind.__doc__ or "").split())
        rows.append([f"`{kind.__name__}{_call(kind.__init__, ('ttl_s', 'clock'))}`", text])
    return grid(["kind", "what it is, and what a checkpoint writes"], rows)


def _stored(name: str) -> str:
    """Return a stored result of two or more columns."""
    head, *rows = rows_of(name)
    return grid(head, rows)


def rows_of(name: str) -> list[list[str]]:
    """Return the rows of a stored result, the names of its columns first."""
    with open(ROOT / "docs" / "benchmarks" / f"{name}.csv", newline="") as file:
        return list(csv.reader(file))


def faults() -> str:
    """Return the number of applied faults by kind."""
    return _stored("faults")


def tried() -> str:
    """Return the optimisations that were measured and not kept."""
    return _stored("tried")


def missed() -> str:
    """Return the goals that are missed, and where their time goes; the last column says which figures each row
    explains.
    """
    head, *rows = rows_of("missed")
    return grid(head[:-1], [row[:-1] for row in rows])


def _of_sinks(*columns: tuple[str, str]) -> str:
    """Return a table of all sinks with parts of their docstrings."""
    rows = []
    for kind in SINKS:
        joined = re.sub(r"\n(?=[^\n])(?!\w+: )", " ", inspect.cleandoc(kind.__doc__ or ""))
        parts = dict(re.findall(r"^(\w+): (.*)\.$", joined, re.MULTILINE))
        rows.append([f"`{kind.__name__}`", *(parts[label] for label, _ in columns)])
    return grid(["sink", *(head for _, head in columns)], rows)


def stores() -> str:
    """Return the sinks, and how each writes once."""
    return _of_sinks(
        ("Needs", "needs"), ("Readers", "what users read"), ("Step", "the atomic step"), ("Fence", "the fence")
    )


def survived() -> str:
    """Return the failures that each sink survives in addition to the death of a task."""
    return _of_sinks(("Server", "kill -9 of the server"), ("Power", "loss of power"), ("Limits", "limits"))


def _literal(path: str, name: str) -> dict[str, Any]:
    """Return a table of a module that is not imported, because its client is an extra."""
    for each in ast.parse((ROOT / path).read_text()).body:
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name) and each.targets[0].id == name:
            return dict(ast.literal_eval(each.value))
    raise LookupError(f"{path} has no {name}")


_EFFECTS = "tests/properties/upgrades/effects.py"
_CALLED = {"Pipeline": "pipeline.", "Table": "table.", "Grouped": "table.group_by(…).", "Context": "ctx."}


def upgrades() -> str:
    """Return the effects of changes at an upgrade, as the matrix of upgrades checks them."""
    columns, notes = ("applied", "from now on", "refused"), _literal(_EFFECTS, "NOTES")
    rows: dict[str, dict[str, list[str]]] = {}
    for changes in _literal(_EFFECTS, "GRAPH").values():
        for what, effect, note in changes:
            rows[what] = {effect: [note or "yes"]}
    for name, effect in _literal(_EFFECTS, "EFFECTS").items():
        operator, option = name.rstrip(")").split("(")
        owner, _, method = operator.rpartition(".")
        row = rows.setdefault(f"`{_CALLED.get(owner, '.' if owner else '')}{method}`", {})
        note = notes.get(name, "while kept state needs it" if effect == "depends" else "")
        row.setdefault("refused" if effect == "depends" else effect, []).append(
            f"`{option}`" + (f" ({note})" if note else "")
        )
    return grid(
        ["operator", *columns],
        [[what, *(", ".join(row.get(each, [])) for each in columns)] for what, row in rows.items()],
    )


def answers() -> str:
    """Return the answers of servers that sinks know, and what to do about each."""
    rows = []
    for server in ("postgres", "redis"):
        path = f"operators/sinks/{server}/{server}_errors.py"
        for name, job in (("_REMEDIES", "waits"), ("_FOR_GOOD", "ends with one line")):
            rows += [[server, f"`{answer}`", job, remedy] for answer, remedy in _literal(path, name).items()]
    return grid(["server", "answer begins with, or has", "the job", "what to do"], rows)


def queries() -> str:
    """Return the queries of Nexmark."""
    return grid(["query", "answer"], [[str(number), _line(query.__doc__)] for number, query in BUILT.items()])


def deliveries() -> str:
    """Return the sinks that pass rows on, each without its arguments."""
    rows = []
    for kind in (CallbackSink, WebhookSink, ConsoleSink):
        described = inspect.cleandoc(kind.__doc__ or "").partition("Needs:")[0]
        rows.append([f"`{kind.__name__}`", " ".join(described.split())])
    return grid(["sink", "what it does"], rows)


def rooms() -> str:
    """Return the packages of `standby`, `operators` and `deploy`, each with its first sentence."""
    packages = [
        path for home in ("standby", "operators", "deploy") for path in sorted((ROOT / home).glob("*/__init__.py"))
    ]
    docstrings = [(path.parent, ast.get_docstring(ast.parse(path.read_text()))) for path in packages]
    rows = [[f"`{room.relative_to(ROOT)}/`", _line(docstring)] for room, docstring in docstrings]
    return grid(["room", "contents"], rows)


def assigners() -> str:
    """Return the assigners of windows."""
    kinds_of_windows = (Tumbling, Sliding, Session, CountWindow, Global)
    rows = [[f"`{kind.__name__}{_call(kind.__init__)}`", _line(kind.__doc__)] for kind in kinds_of_windows]
    return grid(["assigner", "windows"], rows)


def _described(*names: tuple[str, str]) -> str:
    """Return a table of operators with their descriptions, without what they log and keep."""
    rows = []
    for place, name in names:
        member = getattr(_CLASSES[place], name)
        paragraphs = inspect.cleandoc(member.__doc__).split("\n\n")
        kept = [each for each in paragraphs if not each.startswith(("Logs", "State", "Raises"))]
        arguments = [re.sub(r"^    (\w+): ", r"`\1`: ", each.removeprefix("Args:\n"), flags=re.M) for each in kept]
        rows.append(
            [f"`{_PREFIXES.get(name, place)}.{name}{_call(member, UNSHOWN)}`", " ".join(" ".join(arguments).split())]
        )
    return grid(["call", "what it does"], rows)


def tables() -> str:
    """Return the operators of tables."""
    makers = (("", name) for name in ("table", "aggregate_table", "window_table"))
    return _described(*makers, *(each for each in _OPERATORS if each[0] in ("table", "grouped")))


def times() -> str:
    """Return the operators of event time and side outputs."""
    return _described(("", "watermarks"), ("", "timed"), ("", "side"))


def _call(function: Callable[..., object], without: Collection[str] = ()) -> str:
    """Return the arguments of a method, without their types."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    bare = [
        each.replace(
            annotation=inspect.Parameter.empty, default=_UNSET if type(each.default) is object else each.default
        )
        for each in parameters
        if each.name not in without and each.annotation != "Never"  # which is there to be refused
    ]
    return str(inspect.Signature(bare)).replace("*, ", "").replace("'", '"')


_TABLES: Mapping[str, Callable[[], str]] = {
    each.__name__: each
    for each in (
        settings,
        metrics,
        alerts,
        header,
        kinds,
        deltas,
        chunks,
        echoes,
        entries,
        examples,
        context,
        operators,
        tables,
        times,
        rooms,
        assigners,
        failures,
        limits,
        states,
        faults,
        tried,
        missed,
        deliveries,
        answers,
        queries,
        stores,
        survived,
        upgrades,
    )
}


def filled(page: str) -> str:
    """Return the page with the present tables in their places."""
    page = _PLACE.sub(lambda place: place[1] + _TABLES[place[2]]() + place[3], page)
    measured = appendix.contents(appendix.stored()) if _MEASURED.search(page) else {}
    return _MEASURED.sub(lambda place: f"{place[1]}{measured[place[2]].rstrip()}\n{place[3]}", page)


def main() -> None:
    for name in PAGES:
        path = ROOT / name
        path.write_text(filled(path.read_text()))


if __name__ == "__main__":
    main()
