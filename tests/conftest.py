"""What all tests share."""

import gc


def pytest_collection_finish() -> None:
    """What is loaded by now stays: to look through it for garbage takes a tenth of the tests' time."""
    gc.collect()
    gc.freeze()
