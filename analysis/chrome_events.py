"""Loads a trace in Chrome's JSON format: torch.profiler writes it, Perfetto reads it.

A document is `{"traceEvents": [...], ...}` or the bare list. Times are microseconds with three decimals and
stay exact here: a float would lose the nanoseconds of a time stamp that counts from long ago.
Sources: the Trace Event Format, and libkineto's `output_json.cpp` and `CudaMetadataFields.h` for what
torch.profiler puts into it.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn

from contract import LaunchgapError

Event = Mapping[str, Any]

SUFFIXES = (".json", ".json.gz")
"""How files in this format are called."""

RECORD = "record the program again, and let it end by itself"
"""What to do about a file that is damaged or incomplete."""

_NS_PER_US = 1_000
_MAX_WHOLE = 2**62
_MAX_US = _MAX_WHOLE // _NS_PER_US
_SHOWN_CHARACTERS = 80


class Kind(StrEnum):
    """What an event is, whichever way its category is spelt."""

    KERNEL = "kernel"
    MEMCPY = "gpu_memcpy"
    MEMSET = "gpu_memset"
    GRAPH = "cuda_graph"
    RUNTIME = "cuda_runtime"
    DRIVER = "cuda_driver"
    RANGE = "user_annotation"


# Before torch 1.12 the categories were called Kernel, Memcpy, Memset and Runtime.
_KINDS = {str(kind): kind for kind in Kind} | {
    "memcpy": Kind.MEMCPY,
    "memset": Kind.MEMSET,
    "runtime": Kind.RUNTIME,
}


@dataclass(frozen=True)
class Document:
    """A loaded trace: events that mean something here by kind, and what else the file says."""

    path: Path
    events: Mapping[Kind, list[Event]]
    about: Mapping[str, Any]


def is_chrome_trace(path: Path) -> bool:
    """Whether a file is called as traces in this format are."""
    return path.name.lower().endswith(SUFFIXES)


def load(path: Path) -> Document:
    """Load a trace (`.json`, or gzipped).

    Raises:
        LaunchgapError: the file is missing, damaged, cut short, or no Chrome trace.
    """
    content = _parsed(path)
    about = content if isinstance(content, dict) else {}
    events = about.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(events, list):
        raise LaunchgapError(f"{path}: no Chrome trace (no traceEvents); give what a profiler wrote")
    found: dict[Kind, list[Event]] = {kind: [] for kind in Kind}
    for event in events:
        if not isinstance(event, dict) or event.get("ph") not in ("X", "B"):
            continue
        kind = _KINDS.get(str(event.get("cat", "")).lower())
        if kind is not None:
            found[kind].append(event)
    rest = {key: value for key, value in about.items() if key != "traceEvents"}
    return Document(path, found, rest)


def arguments(event: Event) -> Mapping[str, Any]:
    """The event's `args`; empty where there are none."""
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def start_ns(path: Path, event: Event) -> int:
    """Start in nanoseconds after the file's base time.

    Raises:
        LaunchgapError: it has no time, or one that is no time.
    """
    return _ns(path, event, "ts")


def duration_ns(path: Path, event: Event) -> int | None:
    """Duration in nanoseconds; None where the event never ended.

    Raises:
        LaunchgapError: the duration is no time, or negative.
    """
    if event["ph"] == "B" or event.get("dur") is None or arguments(event).get("finished") is False:
        return None
    duration = _ns(path, event, "dur")
    if duration < 0:
        complain(path, event, "dur")
    return duration


def whole(path: Path, event: Event, values: Mapping[str, Any], key: str, absent: int) -> int:
    """A whole number of an event or of its arguments; `absent` where there is none.

    Raises:
        LaunchgapError: something else stands there.
    """
    value = values.get(key)
    if value is None:
        return absent
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MAX_WHOLE:
        complain(path, event, key)
    return value


def _ns(path: Path, event: Event, key: str) -> int:
    value: object = event.get(key)
    if not isinstance(value, Decimal):
        value = Decimal(whole(path, event, event, key, _MAX_WHOLE))
    if abs(value) > _MAX_US:
        complain(path, event, key)
    return round(value * _NS_PER_US)


def complain(path: Path, event: Event, key: str) -> NoReturn:
    """Refuse a file for what one of its events has under a key.

    Raises:
        LaunchgapError: always.
    """
    name, value = str(event.get("name"))[:_SHOWN_CHARACTERS], str(arguments(event).get(key, event.get(key)))
    raise LaunchgapError(f"{path}: event {name!r} has {value[:_SHOWN_CHARACTERS]!r} for {key}; {RECORD}")


def _parsed(path: Path) -> object:
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8", "replace")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise LaunchgapError(f"{path}: no complete gzip file ({error}); {RECORD}") from error
    except OSError as error:
        raise LaunchgapError(f"{path}: cannot be read ({error.strerror}); give a Chrome trace") from error
    if not text.strip():
        raise LaunchgapError(f"{path}: empty; {RECORD}")
    try:
        # Profilers write what JSON forbids: raw control characters in names, NaN and Infinity as numbers.
        return json.loads(text, parse_float=Decimal, parse_constant=lambda _: None, strict=False)
    except (ValueError, InvalidOperation) as error:
        raise LaunchgapError(f"{path}: no complete JSON ({error}); {RECORD}") from error
    except RecursionError as error:
        raise LaunchgapError(f"{path}: JSON nested too deeply for a trace; give a Chrome trace") from error
