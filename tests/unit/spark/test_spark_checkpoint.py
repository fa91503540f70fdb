"""Spark's checkpoint comes back from the store as it was with a batch, on any disk, and old objects go."""

from __future__ import annotations

from pathlib import Path

import msgpack
import pytest

from causal.errors import CorruptData, PipelineError
from operators.ingest.contract import digest_of
from operators.spark import checkpoint as spark_checkpoint
from operators.spark.checkpoint import StoredCheckpoint
from tests.properties.objects import Memory

FOLDER = "ingest/lines"


def kept(memory: Memory, host: Path, batch: int) -> str:
    checkpoint = StoredCheckpoint(memory, FOLDER, host)
    packed = checkpoint.packed(batch, 1)
    checkpoint.store(packed)
    checkpoint.note(packed)
    return packed.name


def write(host: Path, name: str, text: str) -> None:
    path = host / "spark-checkpoint" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def files(host: Path) -> dict[str, str]:
    root = host / "spark-checkpoint"
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def test_each_object_gives_the_files_of_its_batch_and_what_spark_has_removed_is_gone(tmp_path: Path) -> None:
    memory, here, there = Memory(), tmp_path / "here", tmp_path / "there"
    there.mkdir()
    names, expected = [], []
    for batch in range(5):
        write(here, f"offsets/{batch}", f"to {batch}")
        write(here, "metadata", "q" * (batch // 2 + 1))
        write(here, f"offsets/.{batch}.crc", "sum")
        write(here, "offsets/half.tmp", "half")
        if batch > 1:
            (here / "spark-checkpoint" / "offsets" / str(batch - 2)).unlink()
        names.append(kept(memory, here, batch))
        expected.append({name: text for name, text in files(here).items() if not name.endswith(".tmp")})
    for name, wanted in zip(names, expected, strict=True):
        write(there, "offsets/99", "what a driver has left that was replaced")
        StoredCheckpoint(memory, FOLDER, there).restore(name)
        assert files(there) == wanted
    write(there, "offsets/5", "to 5")
    StoredCheckpoint(memory, FOLDER, here).restore(kept(memory, there, 5))
    assert files(here) == {**expected[-1], "offsets/5": "to 5"}
    StoredCheckpoint(memory, FOLDER, here).restore("")
    assert not (here / "spark-checkpoint").exists()


def test_a_chain_of_objects_ends_and_what_is_before_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_checkpoint, "CHAIN_MAX", 3)
    memory = Memory()
    for batch in range(30):
        write(tmp_path, f"offsets/{batch}", str(batch))
        name = kept(memory, tmp_path, batch)
        assert len(memory.stored) <= 5
    StoredCheckpoint(memory, FOLDER, tmp_path).restore(name)
    assert files(tmp_path) == {f"offsets/{batch}": str(batch) for batch in range(30)}


def test_a_damaged_or_hostile_object_is_named_and_a_large_checkpoint_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory()
    write(tmp_path, "offsets/0", "0")
    name = kept(memory, tmp_path, 0)
    stored = f"{FOLDER}/spark/{name}"
    memory.stored[stored] = memory.stored[stored][:-1]
    with pytest.raises(CorruptData, match=name):
        StoredCheckpoint(memory, FOLDER, tmp_path).restore(name)
    body = msgpack.packb(["", {"../../outside": b""}, []])
    memory.stored[stored] = digest_of(body).encode() + body
    with pytest.raises(CorruptData, match="a path points outside"):
        StoredCheckpoint(memory, FOLDER, tmp_path).restore(name)
    write(tmp_path, "state/0/1.delta", "x" * 100)
    monkeypatch.setattr(spark_checkpoint, "BYTES_MAX", 50)
    with pytest.raises(PipelineError, match="keep state in the pipeline's operators"):
        StoredCheckpoint(memory, FOLDER, tmp_path).packed(1, 1)
