"""The rolling digest depends on the bytes and the barriers between them, and on nothing else."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from causal.channels.rolling import RollingDigest

pieces = st.lists(st.binary(max_size=30), max_size=6)
seeds = st.integers(0, 2**64 - 1)


def fed(seed: int, epochs: list[list[bytes]]) -> RollingDigest:
    digest = RollingDigest(seed)
    for number, epoch in enumerate(epochs):
        if number:
            digest.close()
        for piece in epoch:
            digest.feed(piece)
    return digest


@given(seeds, st.lists(pieces, min_size=1, max_size=3))
def test_how_the_bytes_are_cut_does_not_matter(seed: int, epochs: list[list[bytes]]) -> None:
    joined = [[b"".join(epoch)] for epoch in epochs]
    wanted = fed(seed, joined)
    assert fed(seed, [[bytes((byte,)) for byte in epoch[0]] or [b""] for epoch in joined]).value == wanted.value
    assert fed(seed, [[b"", *epoch, b""] for epoch in epochs]).value == wanted.value


@given(seeds, pieces, pieces, st.binary(min_size=1, max_size=9))
def test_one_number_carries_the_past_on(seed: int, before: list[bytes], after: list[bytes], other: bytes) -> None:
    """A task restored at a barrier knows the value there and nothing else, and continues alike."""
    one = fed(seed, [before, after])
    at_barrier = fed(seed, [before]).close()
    assert fed(at_barrier, [[b"", *after]]).value == fed(seed, [before, [b"", *after]]).value
    assume(other != b"".join(after))
    assert fed(at_barrier, [[other]]).value != one.value or not after


@given(seeds, pieces, st.binary(min_size=1, max_size=9), st.integers(1, 2**64 - 1))
def test_what_does_not_fit_changes_nothing(seed: int, past: list[bytes], packed: bytes, wrong: int) -> None:
    digest, twin = fed(seed, [past]), fed(seed, [past])
    right = twin.feed(packed)
    before = digest.value
    assert not digest.feed_if(packed, right ^ wrong)
    assert digest.value == before
    assert digest.feed_if(memoryview(packed), right)
    assert (digest.value, digest.feed(b"on")) == (right, twin.feed(b"on"))


@given(seeds, pieces, pieces, seeds)
def test_a_copy_goes_its_own_way(seed: int, past: list[bytes], more: list[bytes], adopted: int) -> None:
    digest = fed(seed, [past])
    copy, value = digest.copy(), digest.value
    for piece in more:
        copy.feed(piece)
    copy.adopt(adopted)
    assert digest.value == value and copy.value == adopted
    assert digest.feed(b"".join(more)) == fed(seed, [[*past, b"".join(more)]]).value
    assert copy.feed(b"x") == RollingDigest(adopted).feed(b"x")
