"""Says at a terminal which step a long command is at; under two seconds, or without a terminal, nothing."""

from __future__ import annotations

import threading
from types import TracebackType

from tqdm import tqdm

from analysis.commands.words import shown

DELAY_S = 2.0
"""What is done sooner needs no word."""

_TICK_S = 0.5
_LINE = "{desc}: step {n_fmt} of {total_fmt}, {elapsed}"


class Steps:
    """A progress bar over steps of very different length, whose clock runs on within a long one.

    Args:
        total: how many steps there will be, as far as that is known; see `expect`.
    """

    def __init__(self, total: int) -> None:
        # Counting from 1: what is shown is the step that runs, not those that are done.
        self._bar = tqdm(
            total=total,
            bar_format=_LINE,
            delay=DELAY_S,
            disable=None,
            leave=False,
            miniters=0,
            mininterval=0.1,
        )
        self._ended = threading.Event()
        self._clock = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Steps:
        """Start the clock, where there is anybody to see it."""
        if not self._bar.disable:
            self._clock.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the line away again."""
        self._ended.set()
        if self._clock.is_alive():
            self._clock.join()
        self._bar.close()

    def expect(self, more: int) -> None:
        """Steps that are found out on the way."""
        self._bar.total = (self._bar.total or 0) + more

    def begin(self, what: str) -> None:
        """The next step begins."""
        self._bar.set_description_str(shown(what, 100), refresh=False)
        self._bar.update(1)

    def _tick(self) -> None:
        while not self._ended.wait(_TICK_S):
            # Draws the line again with a later time, once the delay is over.
            self._bar.update(0)
