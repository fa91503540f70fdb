"""The progress of `causal run`, shown as a screen on a terminal and otherwise as a line every few seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TextIO

from deploy.progress.progress_model import ProgressModel
from standby.supervision.job_view import JobView

LINE_WIDTH = 118
EVERY_S = 5.0
"""The interval between lines if there is no terminal."""


class Progress:
    """Shows the progress on `out`, which is the standard error of `causal run`.

    Args:
        companions: the names of sources that need a separate process before the first record can enter.
        hosts: how many hosts should join.
        rows_shown: a function that returns whether rows are printed on the same terminal; if so, a single line below
            them is shown instead of a screen.
    """

    def __init__(
        self,
        out: TextIO,
        companions: Sequence[str] = (),
        hosts: int = 0,
        rows_shown: Callable[[], bool] = lambda: False,
    ) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._model = ProgressModel(companions, hosts)
        self._rows_shown = rows_shown
        self._screen: Any = None
        self._written_s = 0.0

    def show(self, view: JobView, elapsed_s: float) -> None:
        """Process a view, and update the display if an update is due."""
        self._model.take(view, elapsed_s)
        if self._terminal and self._rows_shown():
            self._leave_screen()
            print(f"\r{self.line(elapsed_s)[:LINE_WIDTH]:<{LINE_WIDTH}}", end="", file=self._out, flush=True)
        elif self._terminal:
            if self._screen is None:
                from deploy.progress.progress_screen import Screen  # takes 60 ms, which would delay the job's start

                self._screen = Screen(self._out)
            self._screen.show(self._model, elapsed_s)
        elif elapsed_s - self._written_s >= EVERY_S:
            self._written_s = elapsed_s
            print(f"causal: {self.line(elapsed_s)}", file=self._out, flush=True)

    def line(self, elapsed_s: float) -> str:
        """Return the last view as a single line."""
        return ", ".join([self._model.headline(elapsed_s), *self._model.waits(elapsed_s)])

    def say(self, line: str) -> None:
        """Print a permanent line above the region that is redrawn."""
        text = f"causal: {line}"
        if self._screen is not None:
            self._screen.say(text)
        else:
            print(f"\r{text:<{LINE_WIDTH}}" if self._terminal else text, file=self._out, flush=True)

    def close(self) -> None:
        """Remove the screen or the line from the terminal."""
        self._leave_screen()
        if self._terminal:
            print(f"\r{'':<{LINE_WIDTH}}\r", end="", file=self._out, flush=True)

    def _leave_screen(self) -> None:
        if self._screen is not None:
            self._screen.close()
            self._screen = None
