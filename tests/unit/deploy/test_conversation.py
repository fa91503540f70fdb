"""A command that changes a job excludes others, whatever the supervisor knows of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.changes.conversation import Conversation, Refused


def test_a_second_command_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    (tmp_path / "runtime").write_text(str(tmp_path))
    with Conversation(tmp_path):
        with pytest.raises(Refused, match="another change of this job is under way"), Conversation(tmp_path):
            pass
    with Conversation(tmp_path):
        pass
