"""The surface of the protocol between hosts: what is said, by its number (`standby/supervision/orders.py`).

`python -m tests.architecture.protocol` prints what the code says now; `--write` adds it to `protocol.json` under the
code's `PROTOCOL`, once that is a new number.  Text under a number never changes: agents of that number run
somewhere.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args

from msgspec import NODEFAULT, Struct, structs

from causal.channels import wire
from causal.commands import AnyCommand
from causal.config import STATE_FORMAT, JobConfig
from standby.network import control, tether
from standby.network.description import Description
from standby.supervision import orders
from tests.architecture.source import ROOT

WRITTEN = Path(__file__).with_suffix(".json")
WHAT_TO_DO = (
    "hosts are upgraded one by one, so agents of the version before must still be understood: raise PROTOCOL in "
    "standby/supervision/orders.py by one where what is new has a default, and by two where frames or formats change "
    "or the two could not work together; then `python -m tests.architecture.protocol --write`"
)
APART = ("frames", "state format")
"""These do not differ between two numbers in a row: the tasks of such hosts exchange frames and files."""

Surface = dict[str, Any]


def surface() -> Surface:
    """Return what the code says now; a name with a question mark has a default."""
    from_host = {**control.FROM_HOST, control.LEAVING: None}
    return {
        "frames": wire.VERSION,
        "state format": STATE_FORMAT,
        "orders": {_tag(order): _fields_of_struct(order) for order in get_args(orders.AnyOrder)},
        "commands": {_tag(command): _fields_of_struct(command) for command in get_args(AnyCommand)},
        "from agents": {kind: _fields_of_event(event, "host") for kind, event in from_host.items()},
        "from workers": {kind: _fields_of_event(event, "slot") for kind, event in control.FROM_WORKER.items()},
        "from pulses": {kind: _fields_of_event(event, "slot") for kind, event in control.FROM_PULSE.items()},
        "tether": tether.introduction("challenge", "secret", "host", "session").decode(),
        "description": sorted(Description.__slots__),
        "settings": sorted(field.name for field in fields(JobConfig)),
    }


def _tag(kind: type[Struct]) -> str:
    return str(kind.__struct_config__.tag)


def _fields_of_struct(kind: type[Struct]) -> list[str]:
    each = structs.fields(kind)
    return sorted(f.name + "?" * (f.default is not NODEFAULT or f.default_factory is not NODEFAULT) for f in each)


def _fields_of_event(event: type | None, sender: str) -> list[str]:
    """Return the keys of a message; whom it is from is no key of it."""
    each = fields(event) if event is not None else ()
    has_default = {f.name: f.default is not MISSING or f.default_factory is not MISSING for f in each}
    return sorted(name + "?" * default for name, default in has_default.items() if name != sender)


def written() -> dict[int, Surface]:
    """Return what was said under each number."""
    return {int(number): said for number, said in json.loads(WRITTEN.read_text()).items()}


def differences(before: Mapping[str, Any], now: Mapping[str, Any], where: str = "") -> list[str]:
    """Return the places at which they differ."""
    places: list[str] = []
    for name in sorted({*before, *now}):
        one, other = before.get(name), now.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            places += differences(one, other, f"{where}{name}: ")
        elif isinstance(one, list) and isinstance(other, list):
            places += [f"{where}{name}: {each} is gone" for each in one if each not in other]
            places += [f"{where}{name}: {each} is new" for each in other if each not in one]
        elif one != other:
            places.append(f"{where}{name}: {_short(one)} → {_short(other)}")
    return places


def _short(value: object) -> str:
    return "nothing" if value is None else str(value)


def breaks(before: Surface, now: Surface) -> list[str]:
    """Return what an agent of the number before could not work with, or what a supervisor could not take from it."""
    places = [f"{name}: {before[name]} → {now[name]}" for name in APART if before[name] != now[name]]
    for table in ("orders", "commands"):
        places += _lacking(now[table], before[table], table)
    for table in ("from agents", "from workers", "from pulses"):
        places += _lacking(before[table], now[table], table)
    return places + [f"description: {key} is gone" for key in before["description"] if key not in now["description"]]


def _lacking(sent: Mapping[str, list[str]], expected: Mapping[str, list[str]], table: str) -> list[str]:
    """Return the keys without a default that a receiver expects, and the sender does not know."""
    return [
        f"{table}: {kind} lacks {key}"
        for kind, keys in expected.items()
        if kind in sent
        for key in keys
        if not key.endswith("?") and not {key, f"{key}?"} & set(sent[kind])
    ]


def main(argv: list[str]) -> int:
    """Print the surface, or write it down under a number that has none."""
    if argv != ["--write"]:
        print(json.dumps(surface(), indent=2))
        return 0
    known = written() if WRITTEN.exists() else {}
    if known.get(orders.PROTOCOL, surface()) != surface():
        print(f"{WRITTEN.relative_to(ROOT)} has another {orders.PROTOCOL}: {WHAT_TO_DO}", file=sys.stderr)
        return 1
    known[orders.PROTOCOL] = surface()
    kept = {str(number): known[number] for number in sorted(known)[-2:]}
    text = json.dumps(kept, indent=1)
    WRITTEN.write_text(re.sub(r"\[[^]]*\]", lambda names: " ".join(names[0].split()), text) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
