"""A diagnosis as text: a table of ailments, the trial capture, the parts, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence

from inference.doctor import Ailment, Diagnosis, Harm, Part

_HEADER = ("harm", "operation", "per request", "where")
_VERDICTS = {
    True: "verdict: capturable",
    False: "verdict: not capturable as it is; every line under breaks and corrupts must change",
}
_BETWEEN = "  what cannot be captured lies in the model's own code between these"
_MENDED = ("transformers/masking_utils.py", "torch.tensor(0.0")
_OUR_GRAPHS = "launchgap's own graphs make this mask on the device, see inference.attention"
_LIMITS = "simulated on the CPU: only a GPU shows x.to('cpu'), waits inside kernels and the legacy stream"


def diagnosis_text(title: str, found: Diagnosis, *, simulated: bool) -> str:
    """All of it, ending in a newline; one ailment takes two lines, the second with why and the remedy."""
    lengths = ", ".join(map(str, found.lengths))
    parts = [f"{title}\n{len(found.lengths)} requests of {lengths} tokens"]
    parts.append(_table(found.ailments) if found.ailments else "nothing found in the requests")
    parts.append(_trial(found))
    if found.parts:
        between = all(part.capturable is not False for part in found.parts)
        told = [*_parts(found.parts), *([_BETWEEN] if between else [])]
        parts.append("\n".join(["captured by itself", *told]))
    parts.append(_VERDICTS[found.capturable] + (f"\n{_LIMITS}" if simulated else ""))
    return "\n\n".join(parts) + "\n"


def _table(ailments: Sequence[Ailment]) -> str:
    rows = [
        (str(a.harm), a.operation, "-" if a.per_request is None else f"{a.per_request:.3g}", a.place)
        for a in ailments
    ]
    widths = [max(len(row[column]) for row in (_HEADER, *rows)) for column in range(3)]

    def line(row: Sequence[str]) -> str:
        left = f"{row[0].ljust(widths[0])}  {row[1].ljust(widths[1])}  {row[2].rjust(widths[2])}"
        return f"{left}  {row[3]}"

    lines = [line(_HEADER), "  ".join("-" * wide for wide in (*widths, len(_HEADER[3])))]
    for row, ailment in zip(rows, ailments, strict=True):
        lines += [line(row), " " * (widths[0] + 2) + _why(ailment)]
    return "\n".join(lines)


def _why(ailment: Ailment) -> str:
    if ailment.harm is Harm.EAGER_ONLY:
        return f"eager alone: not done while a stream captures ({ailment.why.partition(';')[0]})"
    is_mended = all(part in ailment.place for part in _MENDED)
    return f"{ailment.why} ({_OUR_GRAPHS})" if is_mended else ailment.why


def _trial(found: Diagnosis) -> str:
    trial = found.trial
    if trial.refused is not None:
        return f"trial capture: refused: {trial.refused}"
    if trial.is_wrong:
        return "trial capture: succeeds, but its replay on another prompt gives other logits than eager"
    if trial.difference is None:
        return f"trial capture: succeeds; its replay was not compared with eager ({trial.why_not})"
    return (
        "trial capture: succeeds; its replay on another prompt is as eager's (largest difference "
        f"{trial.difference:.2g} of the largest logit)"
    )


def _parts(parts: Sequence[Part]) -> list[str]:
    words = {True: "yes", False: "no", None: "-"}
    wide = max(len(part.name) for part in parts)
    return [f"  {words[part.capturable]:3}  {part.name.ljust(wide)}  {part.why}".rstrip() for part in parts]
