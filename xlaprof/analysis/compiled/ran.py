"""Which share of the time ran in compiled graphs, in which, and what passes between the pieces of a cut function.

Measured: calls of graphs are timed, and what is told is of whole steps in which nothing was compiled. Where no steps
are named, it is of all calls. On a GPU it is the host's time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from xlaprof.analysis.evidence.breaks import Broken, function_name
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.fold.graph_calls.sequence import Piece, Spent
from xlaprof.analysis.model.compiled import GraphTimeStat, RunTimeStat
from xlaprof.analysis.principles import HABIT, LISTED, MANY, NAMED, WORTH_SAYING
from xlaprof.text.quantities import duration, percent, plural
from xlaprof.text.strings import enumerated

Key = tuple[int, int]  # of a function: stack of its definition, name
TIMED = "inductor"  # the backend whose graphs are


class Between(NamedTuple):
    """What passes between the graphs on both sides of a break. Seconds of each step; without steps of each time."""

    forward_s: float
    backward_s: float
    measured: int  # times
    stepped: bool

    @property
    def total_s(self) -> float:
        return self.forward_s + self.backward_s

    @property
    def text(self) -> str:
        """As a clause; "" where nothing was measured."""
        if not self.measured:
            return ""
        each = "of each step" if self.stepped else "each time"
        back = f" ({duration(self.backward_s)} of it in the backward pass)" if self.backward_s else ""
        between = f"pass between the graphs on both sides{back}"
        return f"{duration(self.total_s)} {each} {between}, with what the program does there"


def _measured(facts: Facts) -> Spent | None:
    """What was measured; None where that is too little to tell."""
    ran = facts.run.torch_compile.ran
    if ran.whole.steps >= HABIT:
        return ran.whole
    everything = ran.all
    return everything if everything.span and sum(everything.calls.values()) >= MANY else None


def _stepped(spent: Spent) -> bool:
    return spent.steps >= HABIT


def functions(facts: Facts) -> dict[Key, tuple[GraphTimeStat, ...]]:
    """Of each function its graphs, in the order of their lines, forward ones first."""
    spent = facts.once(_measured)
    if spent is None:
        return {}
    found: defaultdict[Key, list[GraphTimeStat]] = defaultdict(list)
    for piece, calls in spent.calls.items():
        code, func, resumed, backward = piece
        took = spent.took.get(piece, 0) / 1e9
        found[code, func].append(
            GraphTimeStat(
                line=facts.place(resumed).line,
                backward=backward,
                share=took * 1e9 / spent.span,
                step_s=took / spent.steps if _stepped(spent) else None,
                call_s=took / calls,
                calls=calls,
            )
        )
    ordered = {key: sorted(several, key=lambda one: (one.backward, one.line)) for key, several in found.items()}
    return {key: tuple(several[:LISTED]) for key, several in ordered.items()}


def said(facts: Facts) -> dict[Key, tuple[str, ...]]:
    """The same in words, with what passes between the pieces of a function."""
    spent = facts.once(_measured)
    found: dict[Key, tuple[str, ...]] = {}
    for key, graphs in functions(facts).items():
        if spent is not None and (text := _said(facts, spent, key, graphs)):
            found[key] = (text,)
    return found


def _said(facts: Facts, spent: Spent, key: Key, graphs: tuple[GraphTimeStat, ...]) -> str:
    took = _each(spent, graphs)
    back = _each(spent, [one for one in graphs if one.backward])
    each = "of each step" if _stepped(spent) else "each call"
    text = f"{percent(sum(one.share for one in graphs))} of the time ran in its graphs: {duration(took)} {each}"
    if back:
        text += f", {duration(back)} of it in the backward pass"
    between = sum(ns for piece, ns in spent.between.items() if piece[:2] == key) / 1e9
    if between and len(graphs) > 1:
        of = spent.steps if _stepped(spent) else _calls(graphs)
        text += f"; {duration(between / of)} between them"
    return text


def _each(spent: Spent, graphs: Sequence[GraphTimeStat]) -> float:
    """Seconds of a step in these graphs; where no steps are named of a call of the function."""
    if _stepped(spent):
        return sum(one.step_s or 0.0 for one in graphs)
    return sum(one.call_s * one.calls for one in graphs) / _calls(graphs)


def _calls(graphs: Sequence[GraphTimeStat]) -> int:
    """Calls of a function: its piece that is called most often."""
    return max((one.calls for one in graphs), default=1)


def by_break(facts: Facts, several: Sequence[Broken]) -> list[Between]:
    """What passes between the graphs beside each of these breaks. No time is told of two of them."""
    spent = facts.once(_measured)
    if spent is None:
        return [Between(0.0, 0.0, 0, False) for _ in several]
    of: defaultdict[int, list[Piece]] = defaultdict(list)
    for piece in spent.between:
        owner = _owner(facts, several, piece)
        if owner is not None:
            of[owner].append(piece)
    return [_between(spent, of[number]) for number in range(len(several))]


def _owner(facts: Facts, several: Sequence[Broken], piece: Piece) -> int | None:
    """Which of the breaks cut the function before this piece: that at the line, or one in what the line calls."""
    at, key = facts.place(piece[2]).at, piece[:2]
    for here in (True, False):
        for number, one in enumerate(several):
            if key not in one.functions:
                continue
            if here and at in [place.at for place in one.places]:
                return number
            if not here and any(frame.at == at for stack, _ in one.by for frame in facts.names.frames(stack)):
                return number
    return None


def _between(spent: Spent, pieces: list[Piece]) -> Between:
    count = sum(spent.breaks.get(piece, 0) for piece in pieces)
    of = spent.steps if _stepped(spent) else max((spent.breaks.get(piece, 0) for piece in pieces), default=1)
    forward, backward = (
        sum(spent.between[piece] for piece in pieces if piece[3] is back) / 1e9 / max(1, of) for back in (False, True)
    )
    return Between(forward, backward, count, _stepped(spent))


def stat(facts: Facts) -> RunTimeStat:
    """What is said of all functions together."""
    ran, spent = facts.run.torch_compile.ran, facts.once(_measured)
    if spent is None:
        return RunTimeStat(text=_why_not(facts), timed=ran.timed, calls=ran.timed + ran.skipped)
    share = spent.ran / spent.span if spent.span else 0.0
    step = spent.span / spent.steps / 1e9 if _stepped(spent) else None
    return RunTimeStat(
        share=share,
        step_s=step,
        timed=ran.timed,
        calls=ran.timed + ran.skipped,
        text=_text(facts, share, step),
    )


def _text(facts: Facts, share: float, step: float | None) -> str:
    ran = facts.run.torch_compile.ran
    whole = f"a step, of {duration(step)}," if step else "the time between calls of graphs"
    text = f"{percent(share)} of {whole} ran in compiled graphs"
    named = list(dict.fromkeys(_before(facts)))
    if named:
        text += f"; {enumerated(named, NAMED)}: compiled before the recording began"
    of = ran.timed + ran.skipped
    text += f". Timed: {ran.timed:,} of {plural(of, 'call')}" if ran.skipped else f". Timed: {plural(of, 'call')}"
    device = facts.run.device
    if device is not None and device.platform != "cpu":
        text += "; the host's time, for a call returns when its kernels are launched"
    others = [one for one in _backends(facts) if one != TIMED]
    if others:
        text += f"; graphs of {enumerated(others, NAMED)} are not timed"
    return f"{text}."


def _before(facts: Facts) -> Iterator[str]:
    """Functions whose graphs were timed, and which the recording did not see compiled."""
    for key, graphs in functions(facts).items():
        share = sum(one.share for one in graphs)
        if key not in facts.run.torch_compile.functions and share >= WORTH_SAYING:
            yield f"{function_name(facts, *key) or 'backward graphs'} {percent(share)}"


def _backends(facts: Facts) -> list[str]:
    captured = (one for one in facts.run.torch_compile.functions.values() if one.versions)
    return sorted({facts.text(one.backend) for one in captured} - {""})


def _why_not(facts: Facts) -> str:
    """Why the share is not known; "" where nothing was compiled that runs."""
    backends, ran = _backends(facts), facts.run.torch_compile.ran
    if TIMED in backends:
        if ran.graphs:
            return f"not known: {plural(ran.timed, 'call')} of graphs, without the first of each, are too few."
        return "not known: this PyTorch has no place at which the calls of its graphs can be timed."
    return f"not known: graphs of {enumerated(backends, NAMED)} are not timed, {TIMED}'s are." if backends else ""
