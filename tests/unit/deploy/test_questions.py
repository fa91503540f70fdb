"""URLs are parsed as questions; one that asks nothing is refused in one line, with its status."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import CorruptData, PipelineError, Unavailable
from deploy.serving.application import status_of
from deploy.serving.host_names import named_host
from deploy.serving.questions import ASKED_MAX, PAGE, PAGE_MAX, URL_BYTES_MAX, Question, parsed
from deploy.serving.refused import BAD_REQUEST, NOT_FOUND, Refused
from operators.queries.key_order import KeyRange
from operators.queries.key_spelling import text_of_key
from operators.queries.state_at import NoSuchState


@pytest.mark.parametrize(
    ("path", "query", "question"),
    [
        ("/state", "", Question([], several=True)),
        ("/state/", "", Question([], several=True)),
        ("/state/count/ann", "", Question([("count", "ann")])),
        ("/state/count/7", "as_of=12", Question([("count", 7)], epoch=12)),
        ("/state/count/%227%22", "as_of=live", Question([("count", "7")], live=True)),
        ("/state/count/a%2Fb%20c", "as_of=checkpoint", Question([("count", "a/b c")])),
        ("/state/count/a+b", "", Question([("count", "a+b")])),
        ("/state/c%C3%B6unt/null", "", Question([("cöunt", None)])),
        ("/state/count/%5B1,%22x%22%5D", "", Question([("count", (1, "x"))])),
        ("/state/count", "key=a&key=7", Question([("count", "a"), ("count", 7)], several=True)),
        ("/state", "get=count/a/b&get=sum/7", Question([("count", "a/b"), ("sum", 7)], several=True)),
        ("/windows/sums/ann", "", Question([("sums", "ann")], windows=True)),
        ("/state/count", "", Question(scanned="count")),
        ("/state/count", "prefix=k&limit=7&values=0", Question(scanned="count", keys=KeyRange("k"), limit=7,
                                                              values=False)),
        ("/state/count", "from=1&to=9&after=3", Question(scanned="count", keys=KeyRange("", 1, 9, 3))),
    ],
)  # fmt: skip
def test_a_url_asks_a_question(path: str, query: str, question: Question) -> None:
    assert parsed(path, query) == question


@pytest.mark.parametrize(
    ("path", "query", "status", "line"),
    [
        ("/", "", NOT_FOUND, "this address does not exist"),
        ("/states/count", "", NOT_FOUND, "this address does not exist"),
        ("/state/count/a/b", "", NOT_FOUND, "this address does not exist"),
        ("/state//a", "", NOT_FOUND, "this address does not exist"),
        ("/windows/sums", "", NOT_FOUND, "this address does not exist"),
        ("/state/count/%7B", "", BAD_REQUEST, "the key { cannot be used"),
        ("/state/count/%ff", "", BAD_REQUEST, "is not UTF-8"),
        ("/state/count/{%22x%22:1}", "", BAD_REQUEST, "the value of an object must be a string"),
        ("/state/count/a", "as_of=yesterday", BAD_REQUEST, "as_of=yesterday is not checkpoint, live or the number"),
        ("/state/count/a", "as_of=0", BAD_REQUEST, "as_of=0 is not"),
        ("/state/count/a", "as_of=1&as_of=2", BAD_REQUEST, "the argument as_of is there 2 times"),
        ("/state/count/a", "limit=3", BAD_REQUEST, "the argument limit is not used at this address"),
        ("/state/count", "limit=0", BAD_REQUEST, f"limit=0 is not a number from 1 to {PAGE_MAX}"),
        ("/state/count", f"limit={PAGE_MAX + 1}", BAD_REQUEST, "is not a number from 1"),
        ("/state/count", "limit=٣", BAD_REQUEST, "is not a number from 1"),
        ("/state/count", "values=no", BAD_REQUEST, "values=no is not 0 or 1"),
        ("/state/count", "as_of=live", BAD_REQUEST, "as_of=live answers the state of keys only"),
        ("/windows/count/a", "as_of=live", BAD_REQUEST, "as_of=live answers the state of keys only"),
        ("/state/count", "from=%7B", BAD_REQUEST, "the key { cannot be used"),
        ("/state/count", "&".join(["key=a"] * (ASKED_MAX + 1)), BAD_REQUEST, f"may ask for {ASKED_MAX} keys"),
        (
            "/state/count",
            "&".join(["key=a"] * (ASKED_MAX + 99)),
            BAD_REQUEST,
            "the arguments of the URL cannot be used",
        ),
        ("/state/count/" + "a" * URL_BYTES_MAX, "", BAD_REQUEST, "ask for fewer keys"),
    ],
)
def test_a_url_that_asks_nothing_is_refused_in_one_line(path: str, query: str, status: int, line: str) -> None:
    with pytest.raises(Refused) as caught:
        parsed(path, query)
    said = str(caught.value)
    assert line in said and caught.value.status == status and "\n" not in said and len(said) < 400


@given(st.text() | st.integers() | st.binary() | st.none(), st.text(min_size=1))
def test_every_key_and_operator_has_a_url(key: Any, operator: str) -> None:
    try:
        path = f"/state/{quote(operator, safe='')}/{quote(text_of_key(key), safe='')}"
    except UnicodeEncodeError:
        return  # a lone surrogate, which a URL cannot carry
    assert len(path) > URL_BYTES_MAX or parsed(path, "") == Question([(operator, key)])


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_url_breaks_the_parser(path: str, query: str) -> None:
    try:
        question = parsed(path, query)
    except Refused as refusal:
        assert refusal.status in (BAD_REQUEST, NOT_FOUND)
    else:
        assert len(question.asked) <= ASKED_MAX and question.limit == PAGE


def test_errors_have_the_status_that_says_whose_fault_they_are() -> None:
    for problem, status in [
        (Refused(410, "gone"), 410), (NoSuchState("x"), 404), (PipelineError("x"), 400), (Unavailable("x"), 503),
        (CorruptData("x"), 500),
    ]:  # fmt: skip
        assert status_of(problem) == status


def test_the_name_of_a_host_is_without_its_port() -> None:
    assert [named_host(host) for host in ("localhost:80", "[::1]:8", "[::1]", "a:b", "")] == [
        "localhost", "[::1]", "[::1]", "", "",
    ]  # fmt: skip
