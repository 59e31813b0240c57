"""Records a run by torch.profiler instead of Nsight Systems: for hosts where nsys cannot be installed.

torch.profiler asks the same CUPTI as nsys does, so only one of them can record at a time. It also times every
operator on the host, which makes gaps between launches longer than they are under nsys; counts are the same.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function, supported_activities

from contract import LaunchgapError, RangeName


class TorchTracer:
    """Writes a Chrome trace (`.json`, or `.json.gz`) of what ran in `recording` until `finish`.

    NVTX ranges are not recorded by torch.profiler; `annotate` opens its own under the same names.
    """

    def __init__(self, trace: Path) -> None:
        self._trace = trace
        self._profile: profile | None = None
        self._on_gpu = False

    @contextmanager
    def recording(self, on_gpu: bool) -> Iterator[None]:
        """Record until `finish`; without it nothing is written.

        Raises:
            LaunchgapError: this torch cannot record GPU work.
        """
        self._on_gpu = on_gpu
        self._profile = profile(activities=self._activities(on_gpu))
        self._profile.start()
        try:
            yield
        finally:
            # A process that ends while its profiler is on ends with a segmentation fault.
            self._stop()

    @staticmethod
    def _activities(on_gpu: bool) -> list[ProfilerActivity]:
        activities = [ProfilerActivity.CPU]
        if on_gpu:
            if ProfilerActivity.CUDA not in supported_activities():
                raise LaunchgapError(
                    f"torch {torch.__version__}: built without CUPTI, so its profiler sees no kernels; "
                    "install torch from pytorch.org, or trace with nsys"
                )
            activities.append(ProfilerActivity.CUDA)
            # CUPTI that is taken down while captured graphs live crashes (pytorch pull request 112507).
            os.environ.setdefault("TEARDOWN_CUPTI", "0")
        return activities

    def annotate(self, name: RangeName) -> AbstractContextManager[object]:
        """A range of that name in the trace: a `user_annotation` event."""
        opened: AbstractContextManager[object] = record_function(name.value)
        return opened

    def finish(self, save: Callable[[], None]) -> None:
        """Write the trace, whole or not at all, then `save` the record, which seals it.

        Raises:
            LaunchgapError: nothing was started.
            OSError: the trace cannot be written.
        """
        if self._on_gpu:
            torch.cuda.synchronize()
        recorded = self._stop()
        if recorded is None:
            raise LaunchgapError("torch.profiler: was not started, so there is nothing to write")
        folder = self._trace.parent
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{self._trace.name}.", dir=folder) as private:
            # The suffix decides whether torch compresses the file.
            written = Path(private, self._trace.name)
            recorded.export_chrome_trace(str(written))
            written.replace(self._trace)
        save()

    def _stop(self) -> profile | None:
        """The profiler, if it was still on."""
        recorded, self._profile = self._profile, None
        if recorded is not None:
            recorded.stop()
        return recorded
