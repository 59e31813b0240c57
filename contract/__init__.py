"""What the two sides of launchgap share: names, record fields, errors. Imports the standard library only.

`inference` (torch) writes records and emits NVTX ranges; `analysis` (no torch) reads both. Neither imports
the other, so every name that crosses the line is defined here, once.
"""

from contract.generation import GenerationFields, GenerationRecord, TokenAgreementFields
from contract.names import (
    ACCEPTANCE_PERCENT,
    DEFAULT_ATTENTION,
    DEFAULT_PADDED_LENGTH,
    DEFAULT_STRATEGIES,
    NVTX_DOMAIN,
    SCHEMA_VERSION,
    WITHOUT_GRAPH,
    CaptureError,
    Dtype,
    GenerationStrategy,
    LaunchgapError,
    RangeName,
    Strategy,
    TraceMode,
    case_name,
)
from contract.records import (
    CaseFields,
    CorrectnessFields,
    FloorFields,
    LatencyRecord,
    ModelFields,
    PreflightRecord,
    StrategyFields,
    TraceRecord,
    read_record,
)

__all__ = [
    "ACCEPTANCE_PERCENT",
    "DEFAULT_ATTENTION",
    "DEFAULT_PADDED_LENGTH",
    "DEFAULT_STRATEGIES",
    "NVTX_DOMAIN",
    "SCHEMA_VERSION",
    "WITHOUT_GRAPH",
    "CaptureError",
    "CaseFields",
    "CorrectnessFields",
    "Dtype",
    "FloorFields",
    "GenerationFields",
    "GenerationRecord",
    "GenerationStrategy",
    "LatencyRecord",
    "LaunchgapError",
    "ModelFields",
    "PreflightRecord",
    "RangeName",
    "Strategy",
    "StrategyFields",
    "TokenAgreementFields",
    "TraceMode",
    "TraceRecord",
    "case_name",
    "read_record",
]
