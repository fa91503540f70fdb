"""The state that a process has in memory: one at a time, and no longer than it is used.

The state of a task lives as long as the process runs it, so the collector skips it (`gc.freeze`): going through
gigabytes would stop the task. What was frozen is never collected again, and chains and tasks are cycles, so a state
that another one replaces would stay forever. So only this module freezes, and it releases the frozen state, with the
files of it, before the next state begins.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from causal.errors import invariant
from operators.runtime.image import Image
from operators.runtime.membership import Begin, Load


@dataclass(slots=True)
class Loading:
    """A state that is being loaded.

    Attributes:
        act: the reason for the loading.
        steps: of the loading; each yields the bytes loaded so far.
    """

    act: Load | Begin
    image: Image
    steps: Iterator[int]


class Resident:
    """The owner of the only state of a process.

    State: `image` is the state, loaded in part or performed on; None after it was released.  It is replaced by `begin`
    alone.

    Args:
        make: makes an empty image of a task.
    """

    def __init__(self, make: Callable[[int], Image]) -> None:
        self.image: Image | None = None
        self._make = make
        self._frozen = False
        self._uncollected = False

    def begin(self, task: int) -> Image:
        """Return an empty state of a task; the one before is released, and what performed on it is collected."""
        self.release()
        self.collect()
        self.image = self._make(task)
        return self.image

    def freeze(self, image: Image) -> None:
        """Record that a task begins to perform on the state, which the collector leaves alone from now on."""
        invariant(image is self.image and not self._frozen, "a process performs on the one state that it has, once")
        self._frozen = True
        gc.freeze()

    def release(self) -> None:
        """Free the state, which is no longer used, and its files; `collect` frees the objects around it."""
        image, self.image = self.image, None
        if image is not None:
            image.chain.release()
        if self._frozen:
            self._frozen, self._uncollected = False, True
            gc.unfreeze()

    def collect(self) -> None:
        """Collect what has performed on a state that was released, once its callers have let go of it."""
        if self._uncollected:
            self._uncollected = False
            gc.collect()
