"""Keys and the roster: written files can be read, what is malformed is refused in one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import PipelineError
from causal.network.curve import new_key
from causal.network.roster import ROSTER, Roster, load_key, save_key


def test_a_key_that_was_saved_is_secret_and_in_the_roster(tmp_path: Path) -> None:
    key, other = new_key("b"), new_key("supervisor")
    path = save_key(tmp_path, key)
    save_key(tmp_path, other)
    assert load_key(path) == key
    assert os.stat(path).st_mode & 0o777 == 0o600
    roster = Roster.load(tmp_path / ROSTER)
    assert (roster.name_of(key.public), roster.name_of(other.public)) == ("b", "supervisor")
    assert [member.name for member in roster.hosts] == ["b"]
    assert key.secret not in (tmp_path / ROSTER).read_text()
    assert key.secret not in repr(key)


def test_a_name_has_one_key_and_the_first_stays(tmp_path: Path) -> None:
    key = new_key("b")
    path = save_key(tmp_path, key)
    with pytest.raises(PipelineError, match="already has a key for b"):
        save_key(tmp_path, new_key("b"))
    assert load_key(path) == key
    path.unlink()
    with pytest.raises(PipelineError, match="already has a key for b"):
        save_key(tmp_path, new_key("b"))


@pytest.mark.parametrize("name", ["", "B", "../x", "a b", "-a", "x" * 64, "a/b", "a\n"])
def test_a_name_that_cannot_be_a_hosts_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="is not a valid host name"):
        save_key(tmp_path, new_key(name))
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_others_can_read_is_refused_with_the_command_that_fixes_it(tmp_path: Path) -> None:
    path = save_key(tmp_path, new_key("b"))
    path.chmod(0o640)
    with pytest.raises(PipelineError, match=f"chmod 600 {path}"):
        load_key(path)


def test_a_roster_and_a_key_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    key = new_key("b")
    path = save_key(tmp_path, key)
    for file in (path, tmp_path / ROSTER):
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert load_key(path) == key
    assert Roster.load(tmp_path / ROSTER).name_of(key.public) == "b"


def test_a_revoked_host_takes_no_part(tmp_path: Path) -> None:
    key = new_key("b")
    save_key(tmp_path, key)
    text = (tmp_path / ROSTER).read_text().rstrip() + "\nrevoked = true\n"
    roster = Roster.read(text, "hosts.toml")
    assert roster.name_of(key.public) is None
    assert roster.hosts == []


PUBLIC = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"


@pytest.mark.parametrize(
    "text, problem",
    [
        ("[b", "not valid TOML"),
        ("b = 3", "use a table"),
        ("[B]\npublic='x'", "a name consists of at most 63 lowercase letters"),
        ("[b]\n", "its public key is missing"),
        ("[b]\npublic='short'", "its public key is missing or malformed"),
        (f"[b]\npublic='{PUBLIC}'\nslots=0", "slots is 0"),
        (f"[b]\npublic='{PUBLIC}'\nslots='4'", "slots is '4'; use a int"),
        (f"[b]\npublic='{PUBLIC}'\nslots=true", "slots is True"),
        (f"[b]\npublic='{PUBLIC}'\nport=3", "unknown setting 'port'"),
        (f"[b]\npublic='{PUBLIC}'\n[b.labels]\ngpu=1", "the values of labels must be strings"),
        (f"[b]\npublic='{PUBLIC}'\n[c]\npublic='{PUBLIC}'", "b and c have the same public key"),
    ],
)
def test_a_roster_that_is_wrong_is_refused_in_one_line(text: str, problem: str) -> None:
    with pytest.raises(PipelineError, match=problem.replace("(", r"\(")) as refusal:
        Roster.read(text, "hosts.toml")
    assert "\n" not in str(refusal.value) and "hosts.toml" in str(refusal.value)


@given(st.text(max_size=200))
def test_any_text_is_a_roster_or_is_refused(text: str) -> None:
    try:
        Roster.read(text, "hosts.toml")
    except PipelineError:
        pass


@given(st.binary(max_size=200))
def test_any_bytes_are_a_key_or_are_refused(data: bytes) -> None:
    path = Path("/dev/shm") / f"causal-key-{os.getpid()}"
    path.write_bytes(data)
    path.chmod(0o600)
    try:
        load_key(path)
    except PipelineError:
        pass
    finally:
        path.unlink()
