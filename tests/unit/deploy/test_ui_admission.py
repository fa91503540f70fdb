"""The requests that the dashboard answers: from this machine, with the token, and changes from its own page alone."""

from __future__ import annotations

import pytest

from deploy.ui.admission import HEADERS, TOKEN, refusal

TOKEN_OF_OURS = "a-token"
OURS = {"host": "127.0.0.1:8790", "origin": "http://127.0.0.1:8790", TOKEN: TOKEN_OF_OURS}


def refused(changes: bool = True, secret: bool = True, **headers: str | None) -> str | None:
    sent = {**OURS, **{name.replace("_", "-"): value for name, value in headers.items()}}
    present = {name: value for name, value in sent.items() if value is not None}
    return refusal(present, TOKEN_OF_OURS, changes, secret)


def test_our_page_is_answered_under_each_name_of_the_loopback() -> None:
    for name in ("127.0.0.1:8790", "localhost:1", "[::1]:8790", "localhost"):
        assert refused(host=name, origin=f"http://{name}") is None
    assert refused(changes=False, origin=None) is None
    assert refused(changes=False, secret=False, x_causal_token=None) is None  # the files of the page


@pytest.mark.parametrize(
    "name",
    ["evil.example:8790", "127.0.0.1.evil.example", "", "127.0.0.1:8790:1", "127.0.0.1:x", "[::1", "localhost@evil"],
)
def test_another_name_is_refused_whatever_else_is_right(name: str) -> None:
    reason = refused(changes=False, secret=False, host=name, origin=f"http://{name}")
    assert reason is not None and "address" in reason


@pytest.mark.parametrize(
    "origin", [None, "null", "", "http://evil.example", "https://127.0.0.1:8790", "http://127.0.0.1:8791"]
)
def test_a_change_from_another_page_is_refused(origin: str | None) -> None:
    reason = refused(origin=origin)
    assert reason is not None and "page" in reason


@pytest.mark.parametrize("token", [None, "", "another", "a-toke", "a-token ", "á"])
def test_without_the_token_nothing_about_the_job_is_answered(token: str | None) -> None:
    for changes in (True, False):
        reason = refused(changes, x_causal_token=token)
        assert reason is not None and "token" in reason
    assert refused(True, False, x_causal_token=token) is not None


def test_nothing_inline_and_nothing_from_elsewhere_runs() -> None:
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy and "*" not in policy
