"""What a runner with one set of static storage needs: one call at a time, and a clear end."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import ClassVar, Self

from contract import LaunchgapError


class Exclusive(ABC):
    """A context manager whose calls take turns: one beside another would overwrite its input.

    Subclasses say what a refused caller reads: `_BUSY` and `_CLOSED`.
    """

    _BUSY: ClassVar[str]
    _CLOSED: ClassVar[str]

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Free all that was captured. May be called twice.

        Raises:
            LaunchgapError: a call is running.
        """
        if not self._closed:
            with self._alone():
                self._closed = True
                self._drop()

    def __enter__(self) -> Self:
        """Itself.

        Raises:
            LaunchgapError: a call is running, or this was closed.
        """
        with self._alone():
            return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def _drop(self) -> None:
        """Free what is held."""

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Refuse a second caller, and any after the end, at once.

        Raises:
            LaunchgapError: another call is running, or this was closed.
        """
        if not self._lock.acquire(blocking=False):
            raise LaunchgapError(self._BUSY)
        try:
            if self._closed:
                raise LaunchgapError(self._CLOSED)
            yield
        finally:
            self._lock.release()
