"""Host keys: one secret key file per host, and the public keys of all hosts in `hosts.toml`.

A key file (`b.key`) is secret, and only its user can read it. The roster (`hosts.toml`) is public. It has one table per
host with the host's public key and, optionally, `slots`, `zone` and `labels` for the supervisor. The table `supervisor`
describes the supervisor, and the tables `supervisor-…` describe its successors; each contains the address at which that
supervisor would `listen`. A host that is not in the roster, or is marked as `revoked`, cannot join.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from causal.errors import PipelineError

ROSTER = "hosts.toml"
SUPERVISOR = "supervisor"
"""The name of the supervisor's key, and, with a hyphen after it, the prefix of its successors' key names.

Hosts cannot use these names.
"""

FILE_BYTES_MAX = 1 << 20
HOSTS_MAX = 10_000
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_PUBLIC = re.compile(r"[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
"""A 32-byte key in Z85, with the alphabet of ZeroMQ's RFC 32."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """The key pair of one host or of the supervisor; both keys are 40 characters of Z85."""

    name: str
    public: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Member:
    """A host in the roster; for fields that are None, the settings of its agent apply."""

    name: str
    public: str
    slots: int | None = None
    zone: str | None = None
    labels: Mapping[str, str] | None = None
    listen: str | None = None
    """The address at which agents join a supervisor; empty for a host."""


def is_supervisor(name: str) -> bool:
    """Return whether the key with this name belongs to a supervisor."""
    return name == SUPERVISOR or name.startswith(f"{SUPERVISOR}-")


@dataclass(frozen=True, slots=True)
class Roster:
    """The hosts that may take part; revoked hosts are excluded."""

    members: Mapping[str, Member]

    def name_of(self, public: str) -> str | None:
        """Return the host with this public key, or None if that host may not take part."""
        return next((member.name for member in self.members.values() if member.public == public), None)

    @property
    def hosts(self) -> list[Member]:
        """The members that are not supervisors."""
        return [member for member in self.members.values() if not is_supervisor(member.name)]

    @property
    def supervisors(self) -> list[Member]:
        """The supervisor and its successors."""
        return [member for member in self.members.values() if is_supervisor(member.name)]

    @classmethod
    def read(cls, text: str, where: str) -> Roster:
        """Read a roster.

        Raises:
            PipelineError: the text is not a roster; the message names the mistake.
        """
        try:
            content = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as problem:
            raise PipelineError(f"{where} is not valid TOML ({problem})") from None
        if len(content) > HOSTS_MAX:
            raise PipelineError(f"{where} has {len(content)} hosts; at most {HOSTS_MAX} can take part")
        members: dict[str, Member] = {}
        names: dict[str, str] = {}
        for name, table in content.items():
            member, revoked = _member(name, table, where)
            other = names.setdefault(member.public, name)
            if other != name:
                raise PipelineError(f"{where}: {other} and {name} have the same public key; create one per host")
            if not revoked:
                members[name] = member
        return cls(members)

    @classmethod
    def load(cls, path: Path) -> Roster:
        """Read a roster from a file.

        Raises:
            PipelineError: the file cannot be read or is not a roster.
        """
        return cls.read(_text(path), str(path))


def _member(name: str, table: Any, where: str) -> tuple[Member, bool]:
    problem = None
    if not _NAME.fullmatch(name):
        problem = "a name consists of at most 63 lowercase letters, digits and '-'"
    elif not isinstance(table, dict):
        problem = f"use a table [{name}] with its public key"
    else:
        problem = _problem_of(table)
    if problem is not None:
        raise PipelineError(f"{where}: host {name[:80]!r}: {problem}")
    labels = table.get("labels")
    member = Member(name, table["public"], table.get("slots"), table.get("zone"), labels, table.get("listen"))
    return member, table.get("revoked", False)


def _problem_of(table: Mapping[str, Any]) -> str | None:
    known = {"public": str, "slots": int, "zone": str, "labels": dict, "revoked": bool, "listen": str}
    for name, value in table.items():
        if name not in known:
            return f"unknown setting {name!r:.40}; the known settings are {', '.join(known)}"
        if type(value) is not known[name]:
            return f"{name} is {value!r:.40}; use a {known[name].__name__}"
    if not _PUBLIC.fullmatch(table.get("public", "")):
        return "its public key is missing or malformed; copy the table that `causal keys new` wrote"
    if not 1 <= table.get("slots", 1) <= HOSTS_MAX:
        return f"slots is {table['slots']}; use a number from 1 to {HOSTS_MAX}"
    if not all(type(value) is str for value in table.get("labels", {}).values()):
        return "the values of labels must be strings"
    return None


def read_rosters(paths: Sequence[Path]) -> tuple[Roster, str]:
    """Read the files that together form one roster; return the roster and its text.

    Raises:
        PipelineError: a file cannot be read, or the files do not form a roster, for example because two files contain
            the same host.
    """
    text = "\n".join(_text(path) for path in paths)
    return Roster.read(text, " and ".join(map(str, paths))), text


def mark_of(text: str) -> str:
    """Return the mark by which two processes detect that their rosters differ, or "" for an empty text."""
    return blake2b(text.encode(), digest_size=8).hexdigest() if text else ""


def load_key(path: Path) -> KeyPair:
    """Read a key file.

    Raises:
        PipelineError: the file cannot be read, is readable by other users, or contains no key.
    """
    text = _text(path)
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise PipelineError(f"{path} can be read by other users; run: chmod 600 {path}")
    try:
        content = tomllib.loads(text)
        name, public, secret = (content[each] for each in ("name", "public", "secret"))
        if not (_NAME.fullmatch(name) and _PUBLIC.fullmatch(public) and _PUBLIC.fullmatch(secret)):
            raise ValueError("a field is malformed")
    except (KeyError, TypeError, ValueError, RecursionError) as problem:
        raise PipelineError(
            f"{path} does not contain a key ({problem}); create one with `causal keys new NAME`"
        ) from None
    return KeyPair(name, public, secret)


def save_key(folder: Path, key: KeyPair) -> Path:
    """Write a new key file, which only its user can read, and add the public key to the roster in the same folder.

    Returns: the key file.

    Raises:
        PipelineError: the name is not a valid host name, or the key already exists; nothing was changed.
    """
    if not _NAME.fullmatch(key.name):
        raise PipelineError(
            f"{key.name!r:.80} is not a valid host name; use at most 63 lowercase letters, digits and '-'"
        )
    path, roster = folder / f"{key.name}.key", folder / ROSTER
    known = Roster.load(roster).members if roster.exists() else {}
    if key.name in known or path.exists():
        raise PipelineError(f"{folder} already has a key for {key.name}; use another name, or remove that key first")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(f'# Secret: the process that has this file is {key.name}.\nname = "{key.name}"\n')
            file.write(f'public = "{key.public}"\nsecret = "{key.secret}"\n')
        with open(roster, "a") as file:
            file.write(_table_of(key))
    except OSError as problem:
        raise PipelineError(f"{problem.filename or folder} cannot be written: {problem.strerror}") from None
    return path


def save_members(path: Path, keys: Iterable[KeyPair]) -> None:
    """Atomically replace a roster with one that contains the public keys of these key pairs."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text("".join(map(_table_of, keys)))
    os.replace(fresh, path)


def _table_of(key: KeyPair) -> str:
    return f'[{key.name}]\npublic = "{key.public}"\n\n'


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise PipelineError(
                f"{path} has more than {FILE_BYTES_MAX} bytes, so it is not a key file or roster; use the path of one"
            )
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise PipelineError(
            f"{path} is not a text file, so it is not a key file or roster; use the path of one"
        ) from None
    except OSError as problem:
        raise PipelineError(f"{path} cannot be read: {problem.strerror}") from None
