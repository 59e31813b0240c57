"""Names and errors that both sides use."""

from __future__ import annotations

import re
from enum import StrEnum

SCHEMA_VERSION = 1
"""Version of every JSON record below; readers refuse another one by name."""

NVTX_DOMAIN = "launchgap"
"""NVTX domain of all ranges that launchgap's own executables emit, but for those of modules."""

MODULE_DOMAIN = "launchgap.modules"
"""NVTX domain of the ranges that `--annotate modules` opens, each named by its module's path in the model."""

ROOT_MODULE = "(model)"
"""Name of the range of the model itself, whose path is empty."""


class RangeName(StrEnum):
    """NVTX range names. One `request` contains `copy`, then `forward` or `replay`, then `synchronize`."""

    LOAD = "load"
    WARM_UP = "warm-up"
    CAPTURE = "capture"
    REQUEST = "request"
    COPY = "copy"
    FORWARD = "forward"
    REPLAY = "replay"
    SYNCHRONIZE = "synchronize"


class Strategy(StrEnum):
    """Ways to run one forward pass. `eager` is the baseline of every comparison.

    The first three are measured unless told otherwise. What each does and gives: docs/definitions.md.
    """

    EAGER = "eager"
    GRAPH = "graph"
    GRAPH_PADDED = "graph_padded"
    EAGER_UNMASKED = "eager_unmasked"
    EAGER_LAST = "eager_last"
    GRAPH_LAST = "graph_last"
    GRAPH_BUCKETED = "graph_bucketed"
    GRAPH_FUSED = "graph_fused"
    COMPILED_DEFAULT = "compiled_default"
    COMPILED = "compiled"
    GRAPHED_CALLABLE = "graphed_callable"


DEFAULT_STRATEGIES = (Strategy.EAGER, Strategy.GRAPH, Strategy.GRAPH_PADDED)
"""What is measured and traced unless told otherwise."""

STEP_STRATEGIES = (Strategy.EAGER, Strategy.GRAPH, Strategy.GRAPH_FUSED)
"""Ways to run one step of generation; the first two unless told otherwise."""

WITHOUT_GRAPH = frozenset(
    {Strategy.EAGER, Strategy.EAGER_UNMASKED, Strategy.EAGER_LAST, Strategy.COMPILED_DEFAULT}
)
"""Strategies that launch their kernels one by one: there is no graph for nsys to see."""

ON_OTHER_STREAMS = frozenset({Strategy.COMPILED, Strategy.GRAPHED_CALLABLE})
"""Strategies that run kernels on a stream of their own: torch warms up and captures there."""


class Phase(StrEnum):
    """What a request is: a pass over the whole prompt, or one step of generation after it."""

    PREFILL = "prefill"
    DECODE = "decode"


class TraceMode(StrEnum):
    """`nsys profile --cuda-graph-trace`: one GPU record per graph node, or one per graph launch."""

    NODE = "node"
    GRAPH = "graph"


class Dtype(StrEnum):
    """Weight and activation types, by torch's own names."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


DEFAULT_PADDED_LENGTH = 1024
"""Length that `graph_padded` is captured at unless told otherwise, in tokens."""

DEFAULT_DECODE_SLOTS = 128
"""Slots of the cache that one decode step attends over unless told otherwise, in tokens."""

DEFAULT_ATTENTION = "sdpa"
"""Attention implementation that transformers itself picks for the models here."""

ACCEPTANCE_PERCENT = 30.0
"""The acceptance criterion: the reduction's lower bound must clear this many percent."""


class LaunchgapError(Exception):
    """A user's mistake or a machine's limit, told in one line: what, why, what to do. Exit code 2."""


class CaptureError(LaunchgapError):
    """An operation that a graph cannot hold; names the operation and the line of user code."""


class GenerationStrategy(StrEnum):
    """Ways to generate tokens. `generate`, transformers' own, is the baseline; the last two are peers."""

    GENERATE = "generate"
    GENERATE_STATIC = "generate_static"
    GRAPH = "graph"
    GRAPH_FUSED = "graph_fused"
    VLLM = "vllm"
    SGLANG = "sglang"


def case_name(
    model: str,
    dtype: str,
    prompt_length: int,
    max_length: int,
    attn_implementation: str = DEFAULT_ATTENTION,
    phase: str = Phase.PREFILL.value,
) -> str:
    """Folder name of a case: the model's last path part and what was varied, in shell-safe letters."""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", model.rstrip("/").rsplit("/", 1)[-1]).strip("-.") or "model"
    name = f"{slug}-{dtype}-p{prompt_length}-m{max_length}"
    more = [attn_implementation] if attn_implementation != DEFAULT_ATTENTION else []
    return "-".join([name, *more, *([phase] if phase != Phase.PREFILL else [])])
