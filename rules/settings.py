"""The pipeline's settings: checks the configuration and says which cases and traces it asks for.

Kept out of the Snakefile to be typed and tested; imported at every start of Snakemake, so nothing heavy here.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator, ValidationError, validators

from commandline import require_place
from contract import (
    DEFAULT_ATTENTION,
    STEP_STRATEGIES,
    WITHOUT_GRAPH,
    CaseFields,
    LaunchgapError,
    Phase,
    TraceMode,
    case_name,
    read_record,
)
from nsight.install import GRAPH_EXPORT_SINCE, parse_version
from rules.sweep import OWN_SETTINGS, expand

MEASURE = "measure"
"""Value of the setting `calibration` that has this host's GPU calibrated."""

MEASURED_CALIBRATION = "results/calibration.json"

_SHOWN_CHARACTERS = 60

TRACE_FILES = {"nsys": ("profiles/nsys", ".sqlite"), "torch": ("profiles/torch", ".json.gz")}
"""Folder of the traces that each tracer makes, and the suffix of the file that the analysis reads."""


def check_folders(names: Sequence[str]) -> None:
    """Check that folders exist or can be made, and can be written to, before anything is done for them.

    Raises:
        LaunchgapError: names the first one that cannot.
    """
    for name in names:
        try:
            require_place(Path(name))
        except OSError as error:
            why = "no permission" if isinstance(error, PermissionError) else error.strerror
            raise LaunchgapError(f"{name}: cannot be written ({why}); give a writable folder") from error


def check_config(config: Mapping[str, Any], schema_file: Path) -> None:
    """Check a configuration against its schema and against itself.

    Raises:
        LaunchgapError: names the first key that is wrong, its value and what is allowed.
    """
    schema = yaml.safe_load(schema_file.read_text(encoding="utf-8"))
    errors = _errors(config, schema)
    if errors:
        raise LaunchgapError(f"config: {_schema_message(errors[0])}")
    _check_traced("config", config)
    _check_cases(config)
    named = config["calibration"]
    if named not in (None, MEASURE) and not Path(named).is_file():
        raise LaunchgapError(
            f"config: calibration: {named!r} is no file; give a record of scripts.calibrate, measure, or null"
        )


def calibration(config: Mapping[str, Any], device: str) -> str | None:
    """File of the calibration that the settings ask for; None for the one that is shipped.

    Nothing is calibrated for the simulation, which predicts nothing.
    """
    named = config["calibration"]
    if named == MEASURE:
        return MEASURED_CALIBRATION if device == "cuda" else None
    return None if named is None else str(named)


def _errors(config: Mapping[str, Any], schema: dict[str, Any]) -> list[ValidationError]:
    """What the schema refuses, in the order of the keys. As on a command line, 100.0 is no whole number."""
    checker = Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _checker, value: isinstance(value, int) and not isinstance(value, bool)
    )
    strict = validators.extend(Draft202012Validator, type_checker=checker)  # type: ignore[no-untyped-call]
    return sorted(strict(schema).iter_errors(config), key=lambda error: list(map(str, error.absolute_path)))


def _schema_message(error: ValidationError) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    prefix = f"{where.removeprefix('.')}: " if where else ""
    schema: dict[str, Any] = dict(error.schema) if isinstance(error.schema, Mapping) else {}
    if error.validator in ("additionalProperties", "required"):
        return prefix + _key_message(dict(error.instance), schema)  # type: ignore[arg-type]
    shown = repr(error.instance)
    if len(shown) > _SHOWN_CHARACTERS:
        shown = shown[:_SHOWN_CHARACTERS] + "..."
    return f"{prefix}{shown} is not allowed; give {schema.get('description', error.message)}"


def _key_message(mapping: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    known = schema["properties"]
    for key in mapping:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            return f"unknown key {key!r}; " + (
                f"did you mean {close[0]!r}?" if close else f"use {', '.join(known)}"
            )
    missing = next(key for key in schema["required"] if key not in mapping)
    return f"key {missing!r} is missing; give {known[missing]['description']}"


def _check_traced(where: str, chosen: Mapping[str, Any]) -> None:
    for name in chosen["traced_strategies"]:
        if name not in chosen["strategies"]:
            raise LaunchgapError(
                f"{where}: traced_strategies: {name!r} is not measured; add it to strategies"
            )


def _check_cases(config: Mapping[str, Any]) -> None:
    places = {f"config: cases[{index}]": case for index, case in enumerate(config["cases"])}
    for case in expand(config.get("sweep")):
        where = f"config: sweep: {case_name(**_names(case))}"
        if where in places:
            raise LaunchgapError(f"{where}: comes twice; remove one of its entries in include")
        places[where] = case
    if not places:
        raise LaunchgapError("config: cases: there are none; give one or more, or a sweep")
    seen: set[str] = set()
    for where, case in places.items():
        _check_case(where, case)
        _check_traced(where, _with_own(config, case))
        name = case_name(**_names(case))
        if name in seen:
            raise LaunchgapError(
                f"{where}: the name {name} is taken by an earlier case; remove one of the two"
            )
        seen.add(name)


def _check_case(where: str, case: Mapping[str, Any]) -> None:
    if case["prompt_length"] > case["max_length"]:
        raise LaunchgapError(
            f"{where}.prompt_length: {case['prompt_length']} is more than max_length, "
            f"{case['max_length']}; shorten the prompt or raise max_length"
        )
    if case.get("phase") == Phase.DECODE and case["prompt_length"] < 2:
        raise LaunchgapError(
            f"{where}.prompt_length: 1 leaves a decode step no token before it; give 2 or more"
        )
    if case["model"].startswith((".", "/")) and not Path(case["model"]).is_dir():
        raise LaunchgapError(f"{where}.model: {case['model']!r} is no folder; give one that holds a model")


def _names(case: Mapping[str, Any]) -> dict[str, Any]:
    """A case without the settings of its own."""
    return {key: value for key, value in case.items() if key not in OWN_SETTINGS}


def _all_cases(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The cases that the settings name one by one, then those of the sweep."""
    return [*config["cases"], *expand(config.get("sweep"))]


def cases(config: Mapping[str, Any]) -> dict[str, CaseFields]:
    """The cases of a checked configuration by their names, which are also their folders'."""
    named: dict[str, CaseFields] = {}
    for case in _all_cases(config):
        name = case_name(**_names(case))
        named[name] = fields = CaseFields(
            name=name,
            model=case["model"],
            dtype=case["dtype"],
            prompt_length=case["prompt_length"],
            max_length=case["max_length"],
            attn_implementation=case.get("attn_implementation", DEFAULT_ATTENTION),
        )
        if case.get("phase") == Phase.DECODE:
            fields["phase"] = case["phase"]
    return named


def settings_by_case(config: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """What holds for each case of a checked configuration: the settings for all, and over them its own."""
    return {case_name(**_names(case)): _with_own(config, case) for case in _all_cases(config)}


def _with_own(config: Mapping[str, Any], case: Mapping[str, Any]) -> Mapping[str, Any]:
    own = {key: value for key, value in case.items() if key in OWN_SETTINGS}
    if "strategies" in own and "traced_strategies" not in own:
        # Of the strategies that all cases trace, those that this one measures.
        traced = [name for name in config["traced_strategies"] if name in own["strategies"]]
        own["traced_strategies"] = traced
    return {**config, **own}


def profiler(config: Mapping[str, Any]) -> str:
    """The `profiler` setting; YAML reads a bare `off` as false."""
    return str(config["profiler"] or "off")


def tracer(preflight_file: Path) -> str | None:
    """What records the traces on this host: `nsys`, `torch` (torch.profiler) or, where nothing can, None.

    Raises:
        LaunchgapError: a record that is broken.
    """
    return _tracer(read_record(preflight_file, "preflight"))


def _tracer(preflight: Mapping[str, Any]) -> str | None:
    # Records from before there was a choice name none; nsys was the only one then.
    return preflight.get("tracer", "nsys") if preflight["can_trace"] else None


def trace_files(tracer_name: str | None, case: str, names: Sequence[str]) -> list[str]:
    """Files of the traces of one case that the analysis reads: each trace and its record."""
    if tracer_name is None:
        return []
    folder, suffix = TRACE_FILES[tracer_name]
    return [f"{folder}/{case}/{name}{end}" for name in names for end in (suffix, ".json")]


def strategies_of(chosen: Mapping[str, Any], case: CaseFields, key: str) -> list[str]:
    """What `strategies` or `traced_strategies` (the key) come to for a case: a decode step has fewer ways."""
    is_step = case.get("phase") == Phase.DECODE
    return [name for name in chosen[key] if not is_step or name in STEP_STRATEGIES]


def trace_names(strategies: Iterable[str], *, graph_mode: bool) -> list[str]:
    """Names (`STRATEGY.MODE`) of traces: each strategy in node mode, and graphs in graph mode if wanted."""
    names = []
    for strategy in strategies:
        names.append(f"{strategy}.{TraceMode.NODE}")
        if graph_mode and strategy not in WITHOUT_GRAPH:
            names.append(f"{strategy}.{TraceMode.GRAPH}")
    return names


def has_graph_mode(device: str, nsys: tuple[int, int, int] | None) -> bool:
    """Whether graphs are traced in graph mode as well, by this nsys, None where another tracer records."""
    return device == "cuda" and nsys is not None and nsys >= GRAPH_EXPORT_SINCE


def wanted_traces(strategies: Sequence[str], preflight_file: Path, latency_file: Path) -> list[str]:
    """Names (`STRATEGY.MODE`) of the traces to make of one case, after preflight and measurement.

    Node mode for every one of `strategies` that could be measured. Graph mode as well for graphs on a GPU,
    where nsys can export it: only there a replay keeps its own speed. torch.profiler has no graph mode.

    Raises:
        LaunchgapError: a record that is broken or lacks a traced strategy.
    """
    preflight = read_record(preflight_file, "preflight")
    measured = read_record(latency_file, "latency").get("strategies", {})
    recorded_by = _tracer(preflight)
    if recorded_by is None:
        return []
    nsys = parse_version(preflight["nsys_version"])[0] if recorded_by == "nsys" else None
    for strategy in strategies:
        if strategy not in measured:
            raise LaunchgapError(
                f"{latency_file}: holds no strategy {strategy}; delete it and start again to measure anew"
            )
    whole = [strategy for strategy in strategies if measured[strategy]["status"] == "ok"]
    return trace_names(whole, graph_mode=has_graph_mode(preflight["device"], nsys))
