"""The commands that the page Replay offers: a shell and `causal` read in them what was meant."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.cli import parser
from deploy.ui import replay_commands

PARSER = parser()
NAMES = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=20)


@given(
    NAMES.filter(lambda name: not name.startswith("-")),
    NAMES.filter(lambda name: not name.startswith("-")),
    st.integers(0, 10**9),
    st.booleans(),
)
def test_a_shell_reads_what_was_meant_whatever_things_are_called(
    job: str, name: str, number: int, latest: bool
) -> None:
    for each in replay_commands.of_failure(job, name, number, latest):
        read = PARSER.parse_args(shlex.split(each["command"])[1:])
        assert (read.job, read.task) == (job, name)
        if each["command"].startswith("causal replay"):
            assert read.at_crash and read.epoch == (None if latest else number)
        else:
            assert read.epoch == str(number)
    lineage, *replays = [
        PARSER.parse_args(shlex.split(each["command"])[1:]) for each in replay_commands.of_row(job, name, number)
    ]
    assert (lineage.job, lineage.sink, lineage.row) == (job, name, str(number))
    assert all((each.job, each.row) == (job, f"{name}:{number}") for each in replays)


def test_one_epoch_can_be_replayed_and_several_can_be_compared() -> None:
    read = [PARSER.parse_args(shlex.split(each["command"])[1:]) for each in replay_commands.of_epochs("shop", 7, 7)]
    verbs = [each["command"].split()[1] for each in replay_commands.of_epochs("shop", 7, 7)]
    assert verbs == ["replay", "replay", "diff", "bundle"]
    assert read[2].epoch == "7..7" and [each.epoch for each in read[:2]] == [7, 7]
    assert len(replay_commands.of_epochs("shop", 7, 9)) == 2


@pytest.mark.parametrize("job", ["-x", "$(reboot)", "a b", "`reboot`", "'", '"; reboot; "'])
def test_no_name_becomes_a_command(job: str) -> None:
    for each in replay_commands.of_epochs(job, 1, 1):
        assert shlex.split(each["command"])[2] == job
