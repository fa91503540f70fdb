"""Arguments that can never work are refused before a job starts, in one line, without the secrets of an address."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from causal.errors import PipelineError
from causal.network.addresses import is_loopback
from operators.sinks import (
    CallbackSink,
    JsonLinesSink,
    KafkaSink,
    ParquetSink,
    PostgresSink,
    RedisSink,
    Sink,
    SqliteSink,
    WebhookSink,
)

Make = Callable[..., Sink]
MAKE: dict[str, Make] = {
    "SqliteSink": lambda **options: SqliteSink("out.db", **options),
    "JsonLinesSink": lambda **options: JsonLinesSink("out", **options),
    "ParquetSink": lambda **options: ParquetSink("out", **options),
    "CallbackSink": lambda **options: CallbackSink(print, **options),
    "WebhookSink": lambda **options: WebhookSink("http://x", **options),
    "PostgresSink": lambda **options: PostgresSink("dbname=x", **options),
    "RedisSink": lambda **options: RedisSink(**{"url": "redis://h", **options}),
    "KafkaSink": lambda **options: KafkaSink(**{"servers": "h", "topic": "t", **options}),
}
WRONG: dict[str, list[tuple[dict[str, Any], str]]] = {
    "SqliteSink": [({"existing": "append"}, "existing is "), ({"durability": "ram"}, "durability is "),
                   ({"busy_ms": 0}, "busy_ms is ")],
    "JsonLinesSink": [({"existing": "append"}, "existing is "), ({"durability": "ram"}, "durability is "),
                      ({"busy_ms": 0}, "busy_ms is ")],
    "ParquetSink": [({"existing": "append"}, "existing"), ({"durability": "ram"}, "durability"),
                    ({"busy_ms": 0}, "busy_ms"), ({"file_bytes": 0}, "file_bytes"), ({"publish_s": 0}, "publish_s"),
                    ({"compression": "rar"}, "compression"), ({"columns": ["a", "a"]}, "columns"),
                    ({"columns": []}, "columns"), ({"schema": {"n": "number"}}, "ParquetSink"),
                    ({"schema": 7}, "ParquetSink"),
                    ({"schema": {}}, "ParquetSink"), ({"schema": {"n": "int64"}, "columns": ["m"]}, "ParquetSink")],
    "CallbackSink": [({"batch_rows": 0}, "batch_rows is 0; use 1 to"),
                     ({"durability": "disk"}, "durability is 'disk'; use process or os")],
    "WebhookSink": [({"retried": [200]}, "retried has 200"), ({"timeout_s": 0}, "timeout_s is 0; use"),
                    *(({"headers": headers}, "header '.*; (correct|leave|use)") for headers in (
                        {"a b": "x"}, {"a": "x\ny"}, {"a": "\u20ac"}, {"a": None}, {"Content-Length": "5"}, {"": "x"},
                    ))],
    "PostgresSink": [({"table": "a.b.c"}, "is not a valid name"), ({"existing": "maybe"}, "existing is 'maybe'"),
                     ({"durability": "none"}, "durability is 'none'"), ({"timeout_ms": 0}, "timeout_ms is 0"),
                     ({"columns": "key"}, "lists of names"),
                     ({"columns": ["k"], "place_columns": ["task"]}, "two of the columns"),
                     ({"columns": ["k", "k"]}, "named twice"),
                     ({"columns": ["k"], "existing": "replace"}, "cannot be recognized without place_columns"),
                     ({"existing": "append"}, 'existing="append" needs columns')],
    "RedisSink": [({"stream": ""}, "stream is empty"), ({"url": "localhost:6379"}, "url must begin with one of"),
                  ({"existing": "append"}, "existing is 'append'"), ({"durability": "none"}, "durability is 'none'"),
                  ({"rows_max": 0}, "rows_max is 0"), ({"timeout_ms": 0}, "timeout_ms is 0")],
    "KafkaSink": [({"topic": "a b"}, "use letters, digits"), ({"encode": "xml"}, "encode is 'xml'"),
                  ({"encode": "avro"}, "and schema together"), ({"schema": {}}, "and schema together"),
                  ({"existing": "keep"}, "existing is 'keep'; use refuse, replace or append"),
                  ({"existing": "replace", "transactions": False}, "needs transactions"),
                  ({"key": "k"}, "key is 'k'; use a function"), ({"headers": {}}, "headers is {}; use a function"),
                  ({"timeout_ms": 0}, "timeout_ms is 0"), ({"options": {"acks": "0"}}, "option 'acks' cannot be set")],
}  # fmt: skip
"""Sink → wrong options, and the words of their refusal."""


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [pytest.param(kind, *case, id=f"{kind}-{case[0]!r}") for kind, cases in WRONG.items() for case in cases],
)
def test_options_that_cannot_be_are_refused_by_name(kind: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(PipelineError, match=words) as refused:
        MAKE[kind](**options)
    said = str(refused.value)
    assert said.startswith(kind) and "\n" not in said


IMPOSSIBLE: list[tuple[Callable[[Any], Sink], str, list[Any]]] = [
    (RedisSink, "url is not an address",
     ["redis://me:secret@h:port/0", "redis://[::x/0", "redis://me:secret@h:0", "redis://h:99999", None, 5]),
    (JsonLinesSink, "JsonLinesSink: .* is not (a URL|the URL of a store)",
     ["s3://[::x/b", "s3://a b/p", "file:///a\0b", "s3://", "s3:///prefix", "file://host/x", "gs://bucket/x"]),
    (WebhookSink, "WebhookSink posts to ",
     ["ftp://x/y", "nowhere", "http://", "http://x:port/", "http://x:0/", "http://a..b/", "http://[::x]/",
      "http://a b/", "http://x/a b", "http://x/\u00e4", "http://me:secret@x/", "http://x/\n", 5]),
    (CallbackSink, "CallbackSink: 3 cannot be called", [3]),
]  # fmt: skip
"""Sink, words, and places that can never work."""


@pytest.mark.parametrize(
    ("kind", "words", "place"), [(kind, words, place) for kind, words, places in IMPOSSIBLE for place in places]
)
def test_a_place_that_can_never_work_is_refused(kind: Callable[[Any], Sink], words: str, place: Any) -> None:
    with pytest.raises(PipelineError, match=words) as refused:
        kind(place)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("client", "kind", "place", "words"),
    [
        *(
            ("redis", RedisSink, url, "its url cannot be used")
            for url in ("redis://:secret@a..b/0", "redis://127.0.0.1:1/0?nothing=such")
        ),
        *(
            ("psycopg", PostgresSink, f"host=127.0.0.1 password=secret {more}", "invalid .*; correct the dsn")
            for more in ("port=99999", "sslmode=nothing", "target_session_attrs=nothing")
        ),
        ("psycopg", PostgresSink, "host=127.0.0.1 password=secret port=abc", "dsn is not a connection string"),
        ("psycopg", PostgresSink, "nonsense", "dsn is not a connection string"),
    ],
)
def test_an_address_that_its_client_refuses_is_refused_and_not_waited_for(
    client: str, kind: Callable[[str], Sink], place: str, words: str
) -> None:
    pytest.importorskip(client, reason=f"{client} is not installed: it refuses nothing")
    with pytest.raises(PipelineError, match=words) as refused:
        kind(place).check()
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("s3:///prefix", {}, "is not the URL of a store; use s3://BUCKET/PREFIX or file:///DIRECTORY"),
        ("file:///x", {"durability": "os"}, "objects of file:// are not synced"),
        ("s3://bucket/x", {"publish_s": 0}, "publish_s is 0; use a number of seconds above 0"),
        ("s3://bucket/x", {"file_bytes": 0}, "file_bytes is 0"),
    ],
)
def test_what_no_shared_store_can_do_is_refused(url: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        JsonLinesSink(url, **options)


NAME = {SqliteSink: "out.db", JsonLinesSink: "out", ParquetSink: "out"}


@pytest.mark.parametrize("kind", NAME)
def test_a_place_in_which_nothing_can_be_written_is_refused_before_the_job(
    kind: Callable[[Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = NAME[kind]  # type: ignore[index]
    kind(tmp_path / name).check()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(PipelineError, match=r"none does not exist; create it first \(mkdir -p"):
        kind(tmp_path / "none" / name).check()
    (tmp_path / "file").write_text("")
    is_file = kind is SqliteSink
    taken = tmp_path if is_file else tmp_path / "file"
    with pytest.raises(PipelineError, match="is not a writable file" if is_file else "is not a directory"):
        kind(taken).check()
    if is_file:
        with pytest.raises(PipelineError, match="nothing can be written in /proc"):
            kind("/proc/out.db").check()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    monkeypatch.chdir(tmp_path)
    relative = kind(name)
    monkeypatch.chdir("/")
    assert (relative.path if is_file else relative.directory) == tmp_path / name


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("localhost", True),
        ("0:0:0:0:0:0:0:1", True), ("::1%lo", True), ("0.0.0.0", False), ("::", False), ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False), ("host", False), ("", False),
    ],
)  # fmt: skip
def test_loopback_is_loopback_in_both_families(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback
