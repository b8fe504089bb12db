"""Graphs that are compiled again by design: buckets, stages of a training, modules that take turns, micro-batches.

They take turns for ever, or each runs for long. Sizes are design where somebody chose them, as long as they pay: what
takes seconds, and a large share of the run, is told, unless each is twice the one before, as buckets are, or all have
one budget, as of tokens, which padding to one size would be a multiple of. Sizes that nobody chose, as of the edges of
a batch of graphs, may come back as often, for a data set has only so many: they are normal only in a small share of
the run.
"""

from __future__ import annotations

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.loop_entry import CONDITIONS
from xlaprof.analysis.principles import DEAR, HABIT, LARGE, LONG_S, MANY
from xlaprof.analysis.recompiles.group import Group, is_irregular, rhythms, versions
from xlaprof.analysis.shapes import are_chosen, are_doubled, are_of_one_budget
from xlaprof.analysis.timeline.rhythm import Rhythm

_MOST = 0.7  # of the interruptions that are equally long


def by_design(facts: Facts, group: Group) -> bool:
    """Whether a few sizes, or modules, take turns for ever: each is compiled once, and came back often or ran for long.

    A smaller batch at the end of each pass comes back as well, but alone and at regular intervals. Work that changed
    once and for good is another stage of the training; gradients that a few batches add up to come in two graphs.
    """
    if group.sort == "operation":
        return _is_stage(facts, group) or _takes_turns(facts, group)
    if group.sort != "shape" or group.name == "rank":
        return False
    turns = {one: rhythms(facts, own) for one, own in versions(group).items()}
    often = len(turns)
    if any(not _is_kept(own, often) for own in turns.values()) and not _is_larger_since(facts, group):
        return False
    if _is_last_batch(turns):
        return False
    if are_doubled(turns) or (are_chosen(turns) and are_of_one_budget(turns)):
        return True
    dear = max(LARGE * facts.wall_s, LONG_S) if are_chosen(turns) else DEAR * facts.wall_s
    return bool(group.first.name) or group.cost_s < dear  # modules have names


def _is_kept(own: list[Rhythm], sizes: int) -> bool:
    """Whether one of so many sizes came back often and ran twice as often, or ran for long."""
    returns, steps = sum(rhythm.returns for rhythm in own), sum(rhythm.steps for rhythm in own)
    return steps >= MANY * sizes or (returns >= sizes and steps >= 2 * sizes)


def _is_larger_since(facts: Facts, group: Group) -> bool:
    """Whether there are two sizes, both chosen, and the smaller came a few times before the larger: in a warm-up."""
    programs = versions(group)
    sizes = [int(one) for one in programs if one.isdecimal()]
    if len(sizes) != 2 or sizes[0] > sizes[1] or not are_chosen(programs):
        return False
    since, run = max(extra.record.t for extra in group.extras), facts.run
    return all(
        0 < run.program_runs.get(one, 0) <= HABIT and run.programs.get(one, 0) <= since
        for one in programs[str(sizes[0])]
    )


def _is_regular(rhythm: Rhythm) -> bool:
    away = [count for gap, count in rhythm.gaps.items() if gap != 1]
    return sum(away) >= HABIT and max(away) >= _MOST * sum(away)


def _takes_turns(facts: Facts, group: Group) -> bool:
    """Whether work comes in each so-manieth step: an optimizer's, after so many batches, or in a long run, and at no
    large price, any other.

    Either graph is interrupted again and again, and for as long. The first step's, as of an optimizer that makes its
    state, may never come again.
    """
    pairs = [(extra.record.program, extra.change.against) for extra in group.extras]
    either = 2 if group.first.role == "optimizer" else 1
    regular = all(any(map(_is_regular, rhythms(facts, pair[:either]))) for pair in pairs)
    if not regular or group.first.role:
        return regular and group.first.role == "optimizer"
    programs = {one for pair in pairs for one in pair}
    first, runs, last = min(extra.record.t for extra in group.extras), facts.run.program_runs, facts.run.programs
    early = {one for one in programs if runs.get(one, 0) < HABIT and last.get(one, 0) <= first}
    sides = [rhythms(facts, [program]) for program in programs - early]
    steps = [side[0].steps if side else 0 for side in sides]
    long = len(steps) == 2 and min(steps) >= MANY and sum(steps) >= MANY * MANY
    return long and group.cost_s < max(LARGE * facts.wall_s, LONG_S)


def _is_stage(facts: Facts, group: Group) -> bool:
    """Whether layers were unfrozen, or an ``if`` of the program changed over, once and for good, in a long run.

    Graphs of the stage for other sizes follow later.
    """
    if group.first.role != "backward":
        deciding = facts.place(group.first.condition).acting.code
        if group.first.role or not deciding.startswith(CONDITIONS):
            return False
    first = min((extra.record for extra in group.extras), key=lambda record: record.t)
    earlier = {one.program for one in facts.run.compiles if one.stack == first.stack and one.t < first.t}
    if any(facts.run.programs.get(program, 0) > first.t + first.dur for program in earlier):
        return False
    later = {extra.record.program for extra in group.extras} - earlier
    return all(sum(one.steps for one in rhythms(facts, side)) >= 2 * MANY for side in (earlier, later))


def _is_last_batch(turns: dict[str, list[Rhythm]]) -> bool:
    """Whether the largest size has most of the turns, twice as many as the others, which come at regular intervals."""
    sizes = {int(one): own for one, own in turns.items() if one.isdecimal()}
    if not sizes:
        return False
    largest = sum(rhythm.steps for rhythm in sizes.pop(max(sizes)))
    others = [rhythm for own in sizes.values() for rhythm in own]
    seldom = largest >= 2 * sum(rhythm.steps for rhythm in others) and not is_irregular(others)
    return seldom and any(rhythm.every > 1 for rhythm in others)
