"""graph_break: something cut a graph that was meant to be one. Cost: not known, so 0; the pieces run one by one."""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.analysis.facts import Facts, times
from xlaprof.analysis.model import Finding, Place


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each line and reason."""
    groups: dict[tuple[str, int, str, str], tuple[Place, int]] = {}
    for (stack, reason, text), count in facts.run.breaks.items():
        place = facts.names.place(stack)
        key = (place.file, place.line, reason, facts.names.text(text))
        groups[key] = (place, groups[key][1] + count if key in groups else count)
    for (_, _, reason, op), (place, count) in groups.items():
        why = " ".join(reason.split()).rstrip(".") or "no reason was given"
        yield facts.finding(
            "graph_break",
            place,
            operation=op,
            count=count,
            cost_s=0.0,
            cause=f"The compiled function was cut in two here {times(count)}: {why}.",
            advice=_advice(place.code),
            discriminator=reason,
        )


def _advice(code: str) -> str:
    if "print(" in code:
        return "Remove the print from the compiled function, or print after it returns."
    if ".item()" in code or ".tolist()" in code or "float(" in code or "int(" in code:
        return "Keep the value a tensor (torch.where, torch.clamp) instead of reading it in the compiled function."
    if code.startswith(("if ", "while ")):
        return "Replace the condition on a tensor by torch.where or torch.cond."
    return "Move this line out of the compiled function, or write it with tensor operations only."
