"""Everything the fuzzer begins with or has ever found: read, or refused in the decoder's own way, within its memory.

An input that crashed a decoder once lies in corpus/<target>/ as `crash-…` and is replayed here forever; nothing
here needs the fuzzer.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fuzz.decoders import DECODERS, memory_of, refused
from tests.fuzz.seeds import CORPUS, name_of, seeds

FILES = sorted(path for path in CORPUS.glob("*/*") if path.is_file())


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_was_found_is_read_or_refused_within_its_memory(path: Path) -> None:
    decoder, data = DECODERS[path.parent.name], path.read_bytes()
    refused(decoder, data)  # once before it is measured: what is made forever is made now
    assert memory_of(decoder, data) <= decoder.memory_max(len(data))


@pytest.mark.parametrize("target", DECODERS)
def test_valid_input_is_read(target: str) -> None:
    for data in seeds()[target]:
        assert not refused(DECODERS[target], data), data


def test_the_seeds_on_disk_are_those_that_are_generated() -> None:
    """If it fails, run `python -m tests.fuzz.seeds`."""
    on_disk = {(path.parent.name, path.name): path.read_bytes() for path in FILES if path.name.startswith("seed-")}
    assert on_disk == {(target, name_of(data)): data for target, inputs in seeds().items() for data in inputs}


def test_a_target_is_a_decoder_with_seeds() -> None:
    assert seeds().keys() == DECODERS.keys() == {path.name for path in CORPUS.iterdir() if path.is_dir()}


def test_an_error_of_another_family_is_not_taken_for_a_refusal() -> None:
    careless = replace(DECODERS["values"], read=lambda data: data[9])
    with pytest.raises(IndexError):
        refused(careless, b"short")


def test_a_check_that_fails_and_memory_beyond_the_bound_are_seen() -> None:
    broken = replace(DECODERS["values"], check=lambda value: pytest.fail("another value"))
    with pytest.raises(pytest.fail.Exception):
        refused(broken, b"\x01")
    greedy = replace(DECODERS["values"], read=lambda data: bytes(1 << 20))
    assert memory_of(greedy, b"\x01") > greedy.memory_max(1)
