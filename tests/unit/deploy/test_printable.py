"""Control characters of user data never reach a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.exit_status import say
from deploy.jobs.versions import warn
from deploy.monitoring.logs import _show
from deploy.printable import one_line, printable


def test_control_characters_are_escaped_and_all_else_is_as_it_was() -> None:
    assert printable("a\tb \x1b[31mred\x1b[0m \0\x7f\x9b é 😀") == r"a	b \x1b[31mred\x1b[0m \x00\x7f\x9b é 😀"
    assert one_line(" a\n\tb\x1b[2J ") == r"a b\x1b[2J"


@given(st.text())
def test_a_line_has_nothing_that_moves_a_cursor(text: str) -> None:
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in one_line(text))


def test_commands_print_lines_of_user_code_so(capsys: pytest.CaptureFixture[str]) -> None:
    say("ValueError: \x1b[2J\nx", 1)
    warn("ValueError: \x1b[2J\nx")
    _show([("f/0", "f/0 print: \x1b[2J")], None, None)
    shown = capsys.readouterr()
    assert shown.err == "causal: ValueError: \\x1b[2J x\n" * 2
    assert shown.out == "f/0 print: \\x1b[2J\n"
