"""The shipped settings, as the tests of their checks change them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from contract import LaunchgapError
from rules.settings import check_config

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "config/config.schema.yaml"

Config = dict[str, Any]


def load(name: str) -> Config:
    """One of the files in config/."""
    content = yaml.safe_load((ROOT / "config" / name).read_text())
    assert isinstance(content, dict)
    return content


def refusal(config: Config) -> str:
    """The one line that a configuration is refused with."""
    with pytest.raises(LaunchgapError) as caught:
        check_config(config, SCHEMA)
    message = str(caught.value)
    assert "\n" not in message
    return message
