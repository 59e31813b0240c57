"""The projects of the pipeline's tests, and what the driver of nsys is tested with."""

from tests.nsight.conftest import fake_nsys, program, real_nsys, traced
from tests.pipeline.conftest import finished, finished_master, fresh, nothing_left, real

__all__ = [
    "fake_nsys",
    "finished",
    "finished_master",
    "fresh",
    "nothing_left",
    "program",
    "real",
    "real_nsys",
    "traced",
]
