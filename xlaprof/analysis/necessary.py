"""Why graphs were compiled that no finding counts: the first ones, those of a warm-up, those that are meant, and those
that would be spared, but cost little."""

from __future__ import annotations

import msgspec

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.loop_entry import (
    begins_with_more,
    entered,
    entry,
    holder,
    is_behind,
    left_pending,
    recorded_again,
    saves_entry,
)
from xlaprof.analysis.evidence.looping import visits_per_pass
from xlaprof.analysis.fold.tallies import CompileRecord
from xlaprof.analysis.places import cited
from xlaprof.analysis.recompiles.extra import EARLY, is_of_another_value, meant, settles, spared
from xlaprof.events import Change

#: how the reason of a graph begins that a change of the program spares, and that costs too little for a finding
SPARED = "compiled again, for"


def necessary(facts: Facts, record: CompileRecord) -> str:
    """Why a graph that no finding counts was compiled; "" where the recording does not say what changed."""
    if record.is_first or not record.nth or record.nth < visits_per_pass(facts, record.stack):
        return "first compiled"
    if record.change is None:
        return ""
    if is_of_another_value(facts, record, record.change) or record.change.against in facts.once(spared):
        return "first compiled"
    early, warm_up = record.visits <= EARLY, " in the warm-up" * (record.step <= EARLY)  # else it comes late and seldom
    if record.change.role == "state" and record.change.what == "operation" and not record.change.removed:
        return "compiled for the optimizer's first step,"
    if any(part.change.role == "state" for part in record.parts) or (early and record.change.role == "optimizer"):
        return "compiled again once the optimizer has its state,"
    if record.change.what == "shape":
        return "compiled again for one of few sizes,"
    if more := settles(facts, record, record.change):
        kept = "once what the first step made, as an optimizer's state, is kept"
        return f"compiled again{warm_up}, {kept}: {more} more inputs,"
    if turn := left_pending(facts, record):
        return _lacks(facts, turn, f"{facts.words.barrier} as the first thing of a turn saves that")
    alone = not record.change.condition and len(record.parts) <= 1 and begins_with_more(record.change)
    if alone and is_behind(facts, made := record.change.made, record.stack):
        return _lacks(facts, made, f"{facts.words.barrier} after it saves that")
    if record.change.what == "operation" and (before := facts.place(stack := entry(facts, record, record.change))).line:
        program = holder(record, msgspec.structs.replace(record.change, stack=stack))
        loops, again = entered(facts, record.stack, program), recorded_again(facts, stack, record.stack, program)
        why = SPARED if loops else "compiled again as"
        return f"{why} the first of a loop also holds what {cited(before)} {saves_entry(facts, stack, loops, again)},"
    rhythm = facts.run.program_rhythms.get(record.program)
    if rhythm is not None and rhythm.steps > EARLY and rhythm.every > 1:
        return f"compiled again for what comes {rhythm.text(facts.outer_steps)},"
    if early:
        return f"compiled again{warm_up}, {_differs(facts, record.change)},"
    # a stage that is meant, or lines that no graph had before: what repeats a line has a cause
    another = record.change.what == "operation" and not record.change.code_seen
    stage = another or (record.program, record.t) in facts.once(meant)
    return "compiled again for another phase," if stage and facts.run.program_runs.get(record.program, 0) > 1 else ""


def _lacks(facts: Facts, turn: int, saved: str) -> str:
    """Why a graph was compiled that holds, or does not hold, what the turn before left. ``saved``: what spares it."""
    left = f"what {cited(facts.place(turn))} leaves pending behind the barrier"
    return f"{SPARED} the first turn of a loop does not have {left} ({saved}),"


def _differs(facts: Facts, change: Change) -> str:
    """What a graph of the warm-up does not share with the one that replaced it."""
    line = f" of {cited(where)}" if (where := facts.place(change.made or change.stack)).line else ""
    if not change.role and (decides := facts.place(change.condition)).line:
        return f"for the path that {cited(decides)} chooses"
    if change.role == "grad":
        return "once there are gradients to add to"
    if change.new == "held from before":
        return f"once {change.name or 'a value'}{line} is kept from the step before"
    if change.what == "outputs":
        return f"for another result is still held ({change.name or change.subject}{line})"
    if change.what == "aliasing":
        return f"for {change.name or change.subject}{line} has become another tensor"
    return f"for {change.new} came where {change.old} had been{line}"
