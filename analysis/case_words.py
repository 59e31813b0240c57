"""What a request of a case is, in words."""

from __future__ import annotations

from contract import CaseFields, Phase


def is_step(case: CaseFields) -> bool:
    """Whether a request is one step of generation, not a pass over the prompt."""
    return case.get("phase") == Phase.DECODE


def request_words(case: CaseFields) -> str:
    """Such as `50-token prompt`, or `decode step on token 50, cache of 128`."""
    if is_step(case):
        return f"decode step on token {case['prompt_length']}, cache of {case['max_length']}"
    return f"{case['prompt_length']}-token prompt"
