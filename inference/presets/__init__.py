"""Architectures that ship with the project: a hub id and its published config, one JSON file each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Preset:
    """A named model: where its weights are published, and the config to build it without them."""

    name: str
    hub_id: str
    config: dict[str, Any]


def preset_names() -> list[str]:
    """Names of all shipped presets, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.json"))


def find_preset(name: str) -> Preset | None:
    """The preset of this name, or None. A hub id that a preset stands for finds it as well."""
    for path in sorted(_FOLDER.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if name in (path.stem, content["hub_id"]):
            return Preset(path.stem, content["hub_id"], content["config"])
    return None
