"""uncompiled: the program calls ``torch.compile``, and nothing of what that returned was ever called.

A module that is compiled, of which only methods are called, as ``model.loss(x)``: those run what had been there before.
Or the result is dropped. It leads: who writes ``torch.compile`` wants something compiled. Cost: the time in which looks
at the main thread found what was to be compiled; compiled, half of that remains. On a device that is the device's.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from xlaprof.analysis.compiled.beside import OPERATION_BY_OPERATION, run_uncompiled
from xlaprof.analysis.evidence.counted import Matching
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.model import Finding, Place
from xlaprof.analysis.places import short
from xlaprof.analysis.principles import LONG_S, MOST
from xlaprof.analysis.statements import nodes
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
    looks = facts.once(run_uncompiled) if not facts.run.devices() else frozenset()
    took = sum(facts.run.looks_before[key] for key in looks) / 1e9
    below = any(one.func.rpartition(".")[2] == "forward" for key in looks for one in facts.names.frames(key[0]))
    inside = f", {duration(took)} of it in {'forward' if below else 'its operations'}" * bool(took)
    where = f" (and at {', '.join(map(short, places[1:]))})" if len(places) > 1 else ""
    yield facts.finding(
        "uncompiled",
        places[0],
        operation="torch.compile",
        count=len(places),
        counted=Matching(CompileAsked, ("stack",), frozenset((stack,) for stack in stacks)),
        cost_s=took,
        gain_s=0.0 if any(map(_runs_operations, places)) else took * MOST,
        trifle=False,
        cause=(
            f"torch.compile is called here{where}, and what it returned was never called: nothing was compiled, and "
            f"the program ran {duration(facts.running_s)} without{inside}. A method of a compiled module other than "
            "forward runs as it was before, and so does what is called by its old name."
        ),
        advice=(
            "Call what torch.compile returns (model(x), which runs forward), or compile the method that is called: "
            "model.loss = torch.compile(model.loss). What it returns has to be kept; model.compile() works in place."
        ),
        also=places,
    )


def _runs_operations(place: Place) -> bool:
    """Whether the call asks for a backend that would run the same operations, one by one."""
    asked = (word.value for call in nodes(place.code, ast.Call) for word in call.keywords if word.arg == "backend")
    return any(isinstance(one, ast.Constant) and OPERATION_BY_OPERATION in str(one.value) for one in asked)


KIND = Kind(find, blamed_for=("max_idle",), leads=lambda finding: True)  # eager Python keeps the device waiting
