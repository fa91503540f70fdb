"""One target under atheris: `python -m tests.fuzz.engine TARGET [libFuzzer's arguments]`; needs the extra `fuzz`.

An error outside the decoder's family, a broken check or too much memory ends the run; libFuzzer writes the input to
the place that its arguments name.  Memory is traced for one input in a hundred: tracing all would be too slow.
"""

from __future__ import annotations

import sys

import atheris  # type: ignore[import-untyped]

with atheris.instrument_imports(include=["causal", "operators", "standby"]):
    from tests.fuzz.decoders import DECODERS, memory_of, refused

TRACED_ONE_IN = 100


def main(argv: list[str]) -> None:
    """Do not return: libFuzzer ends the process."""
    decoder = DECODERS[argv[1]]
    count = 0

    def one_input(data: bytes) -> None:
        nonlocal count
        count += 1
        refused(decoder, data)
        if count % TRACED_ONE_IN == 0:
            taken, most = memory_of(decoder, data), decoder.memory_max(len(data))
            assert taken <= most, f"{decoder.name} takes {taken} bytes for {len(data)}, at most {most} are allowed"

    atheris.Setup([argv[0], *argv[2:]], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
