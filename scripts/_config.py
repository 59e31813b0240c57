"""A YAML file with command-line options as keys: checked as the command line is, and overruled by it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from contract import LaunchgapError
from scripts._arguments import Parser

_NOT_IN_FILES = ("help", "config", "verbose")


def parse_with_config(parser: Parser, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line over the defaults of the file that `--config` names; the command line wins.

    Raises:
        LaunchgapError: an unreadable file, an unknown key or a value of the wrong type, each by name.
    """
    first = Parser(add_help=False, allow_abbrev=False)
    first.add_argument("--config", type=Path)
    path = first.parse_known_args(argv)[0].config
    if path is not None:
        parser.set_defaults(**_read_config(parser, path))
    return parser.parse_args(argv)


def _read_config(parser: Parser, path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LaunchgapError(f"config {path}: cannot be read ({error.strerror}); give a YAML file") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise LaunchgapError(f"config {path}: not valid YAML ({error}); mend it") from error
    if not isinstance(content, dict):
        raise LaunchgapError(f"config {path}: holds no `key: value` lines; use the option names as keys")
    actions = {a.dest: a for a in parser._actions if a.option_strings and a.dest not in _NOT_IN_FILES}
    named = {str(key).replace("-", "_"): value for key, value in content.items()}
    if len(named) < len(content):
        raise LaunchgapError(f"config {path}: a key is there twice, with `-` and with `_`; remove one")
    return {key: _checked(path, key, value, actions) for key, value in named.items()}


def _checked(path: Path, key: str, value: object, actions: dict[str, argparse.Action]) -> object:
    """A config value, put through the very checks of its command-line option."""
    if key not in actions:
        raise LaunchgapError(f"config {path}: unknown key {key!r}; use one of {', '.join(sorted(actions))}")
    action = actions[key]
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise LaunchgapError(f"config {path}: {key} is {value!r}; give true or false")
        return value
    if action.nargs == "+":
        if not isinstance(value, list) or not value:
            raise LaunchgapError(f"config {path}: {key} is {value!r}; give a list")
        return [_one(path, key, item, action) for item in value]
    return _one(path, key, value, action)


def _one(path: Path, key: str, value: object, action: argparse.Action) -> object:
    convert = action.type if callable(action.type) else str
    try:
        if isinstance(value, bool | list | dict | None) or (convert is str and not isinstance(value, str)):
            raise argparse.ArgumentTypeError(
                f"{value!r} is not {'text' if convert is str else 'a single value'}"
            )
        result: object = convert(str(value))
    except (argparse.ArgumentTypeError, ValueError) as error:
        raise LaunchgapError(f"config {path}: {key}: {error}; see --help") from error
    if action.choices is not None and result not in action.choices:
        choices = ", ".join(map(str, action.choices))
        raise LaunchgapError(f"config {path}: {key} is {value!r}; use one of {choices}")
    return result
