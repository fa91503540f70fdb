"""Addresses that can never work are refused before a job starts, in one line, without what may be secret in them."""

from __future__ import annotations

from typing import Any

import pytest

from causal.errors import PipelineError
from causal.network.addresses import is_loopback
from operators.sinks import JsonLinesSink, PostgresSink, RedisSink


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


@pytest.mark.parametrize(
    "url", ["redis://me:secret@h:port/0", "redis://[::x/0", "redis://me:secret@h:0", "redis://h:99999", None, 5]
)
def test_an_address_of_redis_that_cannot_be_is_refused(url: Any) -> None:
    with pytest.raises(PipelineError, match="url is not an address") as refused:
        RedisSink(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["redis://:secret@a..b/0", "redis://127.0.0.1:1/0?nothing=such"])
def test_an_address_that_the_client_refuses_is_refused(url: str) -> None:
    pytest.importorskip("redis", reason="redis-py is not installed: its client refuses nothing")
    with pytest.raises(PipelineError, match="its url cannot be used") as refused:
        RedisSink(url).check()
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("more", ["port=abc", "port=99999", "sslmode=nothing", "target_session_attrs=nothing"])
def test_a_dsn_with_which_nothing_can_be_tried_is_refused_and_not_waited_for(more: str) -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed: its client refuses nothing")
    with pytest.raises(PipelineError, match="invalid .*; correct the dsn") as refused:
        PostgresSink(f"host=127.0.0.1 password=secret {more}", "t").check()
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["s3://[::x/b", "s3://a b/p", "file:///a\0b", "s3://"])
def test_the_url_of_a_store_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(PipelineError, match="JsonLinesSink: .* is no (URL|store)"):
        JsonLinesSink(url)
