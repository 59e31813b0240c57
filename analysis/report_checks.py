"""Checks that a JSON record holds what its type promises, so that a half-written one gets a sentence.

The types of `contract` are the only description: a field added there is checked here.
"""

from __future__ import annotations

import math
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    NotRequired,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from contract import LatencyRecord, LaunchgapError, PreflightRecord

Record = TypeVar("Record", LatencyRecord, PreflightRecord)

_WORDS = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    NoneType: "null",
    list: "list",
    dict: "object",
}


def check_record(path: Path, record: dict[str, Any], record_type: type[Record]) -> Record:
    """The record under its type.

    Raises:
        LaunchgapError: a field is missing or of another kind; names the field.
    """
    fault = _fault(record, record_type, "record")
    if fault is not None:
        raise LaunchgapError(
            f"{path}: half-written or edited, {fault}; give the file as launchgap wrote it, or run again "
            "what writes it"
        )
    return cast(Record, record)


def _fault(value: object, kind: object, where: str) -> str | None:
    """What is wrong with a value that should be of the annotated kind, or None."""
    if kind is Any or is_typeddict(kind):
        return None if kind is Any else _object_fault(value, cast(type, kind), where)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return None if value in inner else f"{where} is {value!r}, not one of {', '.join(map(str, inner))}"
    if origin in (Union, UnionType):
        return _union_fault(value, inner, where)
    if origin in (list, dict):
        return _items_fault(value, cast(type, origin), inner[-1], where)
    return (
        None
        if _is_plain(value, cast(type, kind))
        else f"{where} is {value!r}, not {_WORDS[cast(type, kind)]}"
    )


def _object_fault(value: object, kind: type, where: str) -> str | None:
    if not isinstance(value, dict):
        return f"{where} is no object"
    prefix = "" if where == "record" else f"{where}."
    for name, inner in get_type_hints(kind, include_extras=True).items():
        may_be_absent = get_origin(inner) is NotRequired
        if name not in value:
            if may_be_absent:
                continue
            return f"{prefix}{name} is missing"
        fault = _fault(value[name], get_args(inner)[0] if may_be_absent else inner, f"{prefix}{name}")
        if fault is not None:
            return fault
    return None


def _union_fault(value: object, kinds: tuple[object, ...], where: str) -> str | None:
    if value is None and NoneType in kinds:
        return None
    faults = [_fault(value, kind, where) for kind in kinds if kind is not NoneType]
    return None if None in faults else faults[0]


def _items_fault(value: object, container: type, kind: object, where: str) -> str | None:
    if isinstance(value, dict) and container is dict:
        items = list(value.items())
    elif isinstance(value, list) and container is list:
        items = list(enumerate(value))
    else:
        return f"{where} is no {_WORDS[container]}"
    faults = (_fault(item, kind, f"{where}.{key}") for key, item in items)
    return next((fault for fault in faults if fault is not None), None)


def _is_plain(value: object, kind: type) -> bool:
    """Whether a value is of a plain JSON type; true is no number, and a whole number is a number too."""
    if isinstance(value, bool):
        return kind is bool
    if kind is float:
        return isinstance(value, int | float) and math.isfinite(value)
    return isinstance(value, kind)
