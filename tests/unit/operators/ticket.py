"""A library as others write them, and know nothing of this project: it makes identifiers of time and chance.

`install` puts it where packages are installed; everything in it is taken by name, as far away as it can be.
"""

from __future__ import annotations

from pathlib import Path

SOURCE = '''
"""Sortable tickets."""
import datetime as dt
import random
import secrets
import uuid
from datetime import datetime
from os import urandom
from random import Random, choice, getrandbits, randint, random as chance
from time import gmtime, time, time_ns
from uuid import uuid4

_generator = Random()
AT_IMPORT = time()
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class Ticket:
    """Milliseconds and chance, in base 32."""

    def __init__(self):
        self.at = int(time() * 1000)
        self.noise = int.from_bytes(urandom(10), "big")

    def __str__(self):
        whole = self.at << 80 | self.noise
        return "".join(_ALPHABET[whole >> shift & 31] for shift in range(125, -1, -5))


def everything():
    """One value of each kind that the library knows, as text."""
    return [
        str(Ticket()), str(time_ns()), repr(gmtime()), repr(datetime.now()), repr(dt.datetime.now(dt.timezone.utc)),
        repr(dt.date.today()), str(uuid4()), str(uuid.uuid1()), secrets.token_hex(8), str(randint(1, 10**12)),
        str(chance()), str(choice(range(10**9))), str(getrandbits(64)), str(random.gauss(0, 1)),
        str(_generator.random()), str(_generator.randrange(10**9)), str(Random().random()),
        str(secrets.SystemRandom().random()),
    ]
'''


def install(site: Path, name: str = "ticket") -> None:
    """Install this library as package `name` in the directory `site`."""
    package = site / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(SOURCE)
    facts = site / f"{name}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
