"""Patterns of objects match the keys that the same patterns of paths match, and wrong URLs are one line."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from causal.errors import PipelineError
from operators.sources.files.matching import matches
from operators.sources.files.object_patterns import object_patterns

PARTS = ("a", "b", "ab", "a.txt", "b.txt", "_x", ".x", "_a.txt", "é")
WANTED = ("*", "**", "?", "a", "ab", "*.txt", "[ab]", "[!a]*", "_*", ".*", "a*", "?*", "b.txt")


def matched(pattern: str, keys: list[str]) -> list[str]:
    """Return the keys below `in/` that a pattern of objects matches."""
    (parsed,) = object_patterns("here", [f"s3://bucket/{pattern}"])
    fits = (lambda key: key == parsed.key) if parsed.is_exact else parsed.matcher()
    return [key for key in keys if key.startswith(f"{parsed.folder}/") and fits(key)]


def test_a_pattern_matches_the_keys_that_it_matches_as_a_path(tmp_path: Path) -> None:
    chance = Random(4)
    keys = set()
    for _ in range(60):
        key = "/".join(["in", *chance.choices(PARTS[:6], k=chance.randrange(3)), chance.choice(PARTS)])
        path = tmp_path / key
        if not any(parent.is_file() for parent in path.parents) and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")
            keys.add(key)
    for _ in range(400):
        pattern = "/".join(["in", *chance.choices(WANTED, k=chance.randrange(1, 4))])
        local = [os.path.relpath(match.path, tmp_path) for match in matches([str(tmp_path / pattern)])]
        assert matched(pattern, sorted(keys)) == sorted(local), pattern


def test_only_keys_below_the_fixed_folder_are_listed() -> None:
    for pattern, folder in (("in/*.csv", "in"), ("in/2026-*/x", "in"), ("*", ""), ("a/b/**/*.txt", "a/b"), ("x*", "")):
        (parsed,) = object_patterns("here", [f"gs://bucket/{pattern}"])
        assert (parsed.folder, parsed.store, parsed.text) == (folder, "gs://bucket", f"gs://bucket/{pattern}")


def test_characters_of_urls_stand_for_themselves() -> None:
    (parsed,) = object_patterns("here", ["az://logs/a%20b/c#d&e=f+ g~é.txt"])
    assert parsed.is_exact and parsed.key == "a%20b/c#d&e=f+ g~é.txt"
    assert object_patterns("here", ["a.csv", "/b/*.csv"]) == ()


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("s3a://b/x.csv", "s3a://b/x.csv is not the URL of objects; use s3://b/x.csv or a path"),
        ("S3://b/x.csv", "use s3://b/x.csv or a path"),
        ("https://b/x.csv", "use s3://BUCKET/KEY, gs://BUCKET/KEY, az://CONTAINER/KEY or a path"),
        ("s3://b", "s3://b names no objects; use 's3://b/*'"),
        ("s3://b/in/", "use 's3://b/in/*'"),
        ("s3:///x.csv", "names no bucket; use s3://BUCKET/KEY"),
        ("s3://*/x.csv", "names no bucket"),
        ("s3://b/x\n.csv", r"'s3://b/x\n.csv' names no bucket"),
        ("s3://b//x.csv", "has an empty part"),
        ("s3://b/in/../x.csv", "'.' or '..' in its key"),
    ],
)
def test_a_wrong_url_is_one_line(url: str, line: str) -> None:
    with pytest.raises(PipelineError) as refusal:
        object_patterns("p.py:3: FilesSource", [url])
    assert line in str(refusal.value) and "\n" not in str(refusal.value)
    assert str(refusal.value).startswith("p.py:3: FilesSource: ")


def test_urls_and_paths_are_separate_sources() -> None:
    with pytest.raises(PipelineError, match="was given s3://b/x and y; use a separate source for files"):
        object_patterns("here", ["y", "s3://b/x"])
