"""Every golden transcript is what its commands cause; `python -m tests.transcripts --update` writes them again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts.files import chosen, difference


@pytest.mark.parametrize("path", chosen(), ids=lambda path: path.stem)
def test_the_conversation_is_as_written(path: Path) -> None:
    changed = difference(path)
    if changed:
        pytest.fail(
            f"{changed}\n\nif that is meant: python -m tests.transcripts {path.name[:2]} --update", pytrace=False
        )
