"""The projects of the pipeline's tests; the real one runs with secrets, and is watched while it does."""

from tests.pipeline.conftest import fresh, real

__all__ = ["fresh", "real"]
