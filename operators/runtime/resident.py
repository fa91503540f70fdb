"""The state that a process keeps in memory: one state at a time, and only as long as it is used.

The state of a task stays in memory as long as the process runs the task, so the garbage collector skips it
(`gc.freeze`): traversing gigabytes would interrupt the task. Frozen objects are never collected again, and chains and
tasks contain reference cycles, so a replaced state would stay in memory forever. Therefore only this module freezes
objects, and it releases the frozen state and its files before the next state begins.
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
        act: the act that requires the state.
        steps: the steps of loading it; each yields the number of bytes loaded so far.
    """

    act: Load | Begin
    image: Image
    steps: Iterator[int]


class Resident:
    """The owner of the process's only state.

    State: `image` is the state, which may be partly loaded or in use; None once it has been released. Only `begin`
        replaces it.

    Args:
        make: creates an empty image of a task.
    """

    def __init__(self, make: Callable[[int], Image]) -> None:
        self.image: Image | None = None
        self._make = make
        self._frozen = False
        self._uncollected = False

    def begin(self, task: int) -> Image:
        """Release the previous state, collect the objects that used it, and return an empty state for a task."""
        self.release()
        self.collect()
        self.image = self._make(task)
        return self.image

    def freeze(self, image: Image) -> None:
        """Record that a task begins to use the state; the garbage collector skips it from now on."""
        invariant(image is self.image and not self._frozen, "a process performs its one state only once")
        self._frozen = True
        gc.freeze()

    @property
    def performed(self) -> bool:
        """Whether a task has begun to use the state, so that it is no longer the state of a checkpoint."""
        return self._frozen

    def release(self) -> None:
        """Free a state that is no longer used, and its files; `collect` frees the objects that refer to it."""
        image, self.image = self.image, None
        if image is not None:
            image.chain.release()
        if self._frozen:
            self._frozen, self._uncollected = False, True
            gc.unfreeze()

    def collect(self) -> None:
        """Collect the objects that used a released state, once their callers have dropped their references."""
        if self._uncollected:
            self._uncollected = False
            gc.collect()
