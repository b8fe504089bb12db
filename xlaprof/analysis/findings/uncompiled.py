"""uncompiled: the program calls ``torch.compile``, and nothing of what that returned was ever called.

A module that is compiled, of which only methods are called, as ``model.loss(x)``: those run what had been there before.
Or the result is dropped. It leads: who writes ``torch.compile`` wants something compiled. What that would gain the
recording cannot tell, so it has no cost of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.analysis.evidence.counted import Matching
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.model import Finding
from xlaprof.analysis.places import short
from xlaprof.analysis.principles import LONG_S
from xlaprof.events import CompileAsked
from xlaprof.text.quantities import duration


def find(facts: Facts) -> Iterator[Finding]:
    """At most one finding, where Dynamo never looked at anything though the program ran for long."""
    known, end = facts.run.torch_compile, facts.run.end
    stacks = [stack for stack in known.asked if (place := facts.place(stack)).line and not place.library]
    ended = end is not None and not end.error
    if not stacks or not ended or known.functions or known.breaks or known.failed or known.limited:
        return
    places = sorted((facts.place(stack) for stack in stacks), key=lambda place: place.at)
    if facts.running_s < LONG_S:
        return
    where = f" (and at {', '.join(map(short, places[1:]))})" if len(places) > 1 else ""
    yield facts.finding(
        "uncompiled",
        places[0],
        operation="torch.compile",
        count=len(places),
        counted=Matching(CompileAsked, ("stack",), frozenset((stack,) for stack in stacks)),
        cost_s=0.0,
        trifle=False,
        cause=(
            f"torch.compile is called here{where}, and what it returned was never called: nothing was compiled, and "
            f"the program ran {duration(facts.running_s)} without. A method of a compiled module other than forward "
            "runs as it was before, and so does what is called by its old name."
        ),
        advice=(
            "Call what torch.compile returns (model(x), which runs forward), or compile the method that is called: "
            "model.loss = torch.compile(model.loss). What it returns has to be kept; model.compile() works in place."
        ),
        also=places,
    )


KIND = Kind(find, blamed_for=("max_idle",), leads=lambda finding: True)  # eager Python keeps the device waiting
