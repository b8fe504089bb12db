"""What the loop that calls compiled code does beside it, by looks at the main thread."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, takewhile
from typing import NamedTuple

from xlaprof.analysis.evidence.activities import innermost
from xlaprof.analysis.evidence.collecting import asked_for
from xlaprof.analysis.evidence.counted import Matching
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.library_options import option_for, whose
from xlaprof.analysis.model import (
    Finding,
    Place,
)
from xlaprof.analysis.places import cited, function, named, of_called, users
from xlaprof.analysis.principles import (
    DEAR,
    FELT,
    LARGE,
    LOOKED_NS,
    MOST,
    NAMED,
    WORTH_SAYING,
)
from xlaprof.analysis.statements import nodes
from xlaprof.analysis.uses import computed_of_all, hands_on
from xlaprof.events import Look
from xlaprof.text.quantities import duration, percent
from xlaprof.text.strings import enumerated

_SAVES = "checkpoint"
#: in the names of PyTorch's backends that run a graph so: eager, aot_eager and others
OPERATION_BY_OPERATION = "eager"
#: brings an array of the device to the host by Python's buffers, which no event tells of: it may wait for that
_WAITS = re.compile(r"\b(np|onp|numpy)\.(asarray|array)\(")
#: a line that trains, however it is written: the backward pass, and what an optimizer does
_TRAINS = re.compile(r"\b(backward|step|zero_grad|clip_grad\w*|autograd\.grad)\(")
#: all tensors of a module, one after the other
_OF_ALL_TENSORS = re.compile(r"\b(named_)?(parameters|buffers)\(|\b(load_)?state_dict\(")
_TOGETHER = "_foreach_"  # PyTorch's operations on lists of tensors
#: sorts all where a few may be wanted
_SORTS = re.compile(r"\b(arg)?sort\(")
#: PyTorch's, which run a backward pass for each element of the result
_ROW_BY_ROW = re.compile(r"(?<!\bdef )\b(jacobian|hessian)\((?!.*vectorize=True)")
_RESUMES = "torch_dynamo_resume_in_"  # name of a function that Dynamo makes of the part behind a graph break


class _Work(NamedTuple):
    """What looks have in common that found work beside what is compiled."""

    line: Place  # that calls it, the user's or a library's; or the head of the loop that does it
    option: str  # of a library, that decides whether or how often it is done: its advice; "": none is known
    lines: tuple[Place, ...]  # this one, and others that call the same function


def calls_beside(facts: Facts) -> Iterator[Finding]:
    """Work of the host in turns of the loop that calls compiled code, where it takes much of their time: a finding for
    each line that calls it, or loop that does it, and for each option of a library that decides about it.

    Without a device, and where JAX's programs are handed over in advance, only looks at the main thread tell. A line
    that calls compiled code may call other things too, as those that make its arguments. What is compiled, a backward
    pass and an optimizer's step are the program's own work; so is what is called once, and, but where it takes a large
    part of their time, what works on whole arrays and may be different in each turn. The loop may be a library's, and
    so the line.
    """
    names, running, spine = facts.names, facts.running_s * 1e9, _Spine(facts)
    jit = facts.run.jit
    compiles = (*jit.compiled_at, *(stack for stack, _ in jit.functions))  # a function is traced there
    ran = {facts.place(stack).at for stack in (*facts.run.executed_at, *compiles)}
    apart = {place.at for place in asked_for(facts)} | runs_at(facts)  # a finding of its own; no call beside it
    free = running - sum(device.busy for device in facts.run.devices())  # what a faster host can gain
    calls: defaultdict[tuple[object, str], Counter[tuple[int, str]]] = defaultdict(Counter)
    at: defaultdict[tuple[object, str], Counter[Place]] = defaultdict(Counter)
    for (stack, state), ns in (facts.run.looks if jit.functions else facts.run.looks_before).items():
        frames = names.frames(stack)
        depth = next((i for i, one in enumerate(frames) if _function(one) in spine.functions), None)
        if depth is None or state == "import" or any(one.at in ran for one in frames):
            continue
        inner = frames[0]
        if {inner.at, inner.acting.at} & apart or (jit.functions and _WAITS.search(inner.code)):
            continue
        line, turns = spine.work(stack, frames, depth)
        if turns or (state == "torch" and _ROW_BY_ROW.search(inner.acting.code)):
            called = frames[depth - 1] if line == frames[depth] and depth else line
            of: object = line.at if called == line or called.library else _function(called)  # which several may call
            key = of, option_for("idle_gap", inner)
            calls[key][stack, state] += ns
            at[key][line] += ns
    for key, looks in calls.items():
        lines = tuple(line for line, _ in at[key].most_common())
        work = _Work(lines[0], key[1], lines)
        took = min(free, looks.total())
        better = bool(work.option) or _saves(looks) or _is_over_tensors(facts, work, looks)
        better = better or bool(_computed_of_all(facts, work, looks)) or _compiles_anew(facts, looks)
        better = better or bool(_ROW_BY_ROW.search(work.line.code))
        saved = _saved_by_compiling(facts, took) if _runs_one_by_one(looks) and not better else took
        if saved < FELT * running:
            continue
        better = better or _runs_one_by_one(looks) or _is_shown(work.line) or _goes_over(facts, work, looks)
        if not better and all(_is_between(facts, work.line)):  # nothing of it can be left out, or done before
            continue
        least = (DEAR if better and not jit.functions else LARGE) * running
        if took >= max(LOOKED_NS, least, WORTH_SAYING * facts.wall_s * 1e9):
            yield _finding(facts, work, looks, took, saved, running)


def _function(line: Place) -> tuple[str, str]:
    return line.acting.file, line.acting.func


def _runs_one_by_one(looks: Counter[tuple[int, str]]) -> bool:
    """Whether most of it is PyTorch's operations: they could be compiled, too."""
    return sum(ns for (_, state), ns in looks.items() if state == "torch") >= MOST * looks.total()


def _saves(looks: Counter[tuple[int, str]]) -> bool:
    """Whether most of it is a checkpoint."""
    return sum(ns for (_, state), ns in looks.items() if state == _SAVES) >= MOST * looks.total()


def _is_shown(line: Place) -> bool:
    """Whether it is a call of the user's whose value nobody takes: a log, a picture."""
    return not line.library and any(isinstance(one.value, ast.Call) for one in nodes(line.acting.code, ast.Expr))


def _within(facts: Facts, work: _Work, looks: Iterable[tuple[int, str]]) -> Iterator[list[Place]]:
    """The lines of what the line calls, of each look."""
    at = {line.at for line in work.lines}
    for stack, _ in looks:
        yield list(takewhile(lambda one: one.at not in at, facts.names.frames(stack)))


def _compiles_anew(facts: Facts, looks: Counter[tuple[int, str]]) -> bool:
    """Whether most of it is a call of ``torch.compile`` itself, which wraps a function, whatever is compiled again."""
    asked = {facts.place(stack).at for stack in facts.run.torch_compile.asked}
    within = (ns for (stack, _), ns in looks.items() if any(one.at in asked for one in facts.names.frames(stack)))
    return sum(within) >= MOST * looks.total()


def _computed_of_all(facts: Facts, work: _Work, looks: Iterable[tuple[int, str]]) -> str:
    """What computes from all that earlier turns kept, at the line or in what it calls; "": nothing is seen to."""
    codes = chain([work.line.code], (one.code for lines in _within(facts, work, looks) for one in lines))
    return next(filter(None, map(computed_of_all, codes)), "")


def _is_over_tensors(facts: Facts, work: _Work, looks: Counter[tuple[int, str]]) -> bool:
    """Whether most of it goes over all tensors of a module of PyTorch's, or copies them: as an average of weights."""
    if facts.run.jit.functions:
        return False
    over = 0
    for ((stack, _), ns), lines in zip(looks.items(), _within(facts, work, looks), strict=True):
        inside = [one for one in lines if not one.library] or [work.line]
        functions = set(map(_function, inside))
        heads = [loop for loop in facts.names.loops(stack)[:1] if _function(loop) in functions]
        codes = [one.code for one in (*inside, *heads)]
        over += ns * any(map(_OF_ALL_TENSORS.search, codes)) * all(_TOGETHER not in code for code in codes)
    return over >= MOST * looks.total()


def _goes_over(facts: Facts, work: _Work, looks: Iterable[tuple[int, str]]) -> bool:
    """Whether it is a loop, or what the line calls has one: over elements, as a rule."""
    inside = list(_within(facts, work, looks))
    called = all(len(lines) < len(facts.names.frames(stack)) for lines, (stack, _) in zip(inside, looks, strict=True))
    return not called or any(one.loop or nodes(one.code, ast.comprehension) for one in chain(*inside))


def _is_between(facts: Facts, line: Place) -> tuple[bool, bool]:
    """Whether the line takes what compiled code of its function gives, so that nothing of it is the same in each turn;
    and whether compiled code takes what it gives."""
    known = (*facts.run.torch_compile.calls, *facts.run.jit.callers)
    calls = {one.code for one in map(facts.place, known) if (one.file, one.func) == (line.file, line.func)}
    takes = any(hands_on(call, line.code) for call in calls)
    return takes, any(hands_on(line.code, call) for call in calls)


def _saved_by_compiling(facts: Facts, took: float) -> float:
    """Ns of ``took`` that are saved by compiling what took them, if half of it remains, and if to compile it takes as
    long as what the run has compiled did in the mean. A backend that makes no code of its own saves nothing."""
    functions = facts.run.torch_compile.functions.values()
    if functions and not any(
        one.versions and OPERATION_BY_OPERATION not in facts.text(one.backend) for one in functions
    ):
        return 0.0
    return took * MOST - sum(one.dur for one in functions) / max(1, sum(one.compiles for one in functions))


class _Spine:
    """The lines that call what is compiled, and those that call them; a library's, too."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        known = facts.run.torch_compile
        stacks = {*known.calls, *(one.event.stack for one in known.recompiles), *facts.run.jit.callers}
        lines = {one.acting for stack in stacks for one in facts.names.frames(stack)}
        self.functions = {(one.file, one.func) for one in lines}
        self._lines = {one.at for one in lines}
        self._loops: defaultdict[tuple[str, str], set[int]] = defaultdict(set)  # around the lines; 0: none
        for one in lines:
            self._loops[one.file, one.func].add(one.loop)
        self._last: Counter[tuple[str, str, int]] = Counter()  # known line of a loop
        looks = (one.acting for stack, _ in facts.run.looks_before for one in facts.names.frames(stack))
        for one in chain(lines, looks):
            key = one.file, one.func, one.loop
            self._last[key] = max(self._last[key], one.line)
        compiled = {(facts.place(code).file, facts.text(name)) for code, name in known.functions}
        # an older Python knows only the last part of a frame's name
        self._compiled = compiled | {(file, name.rpartition(".")[2]) for file, name in compiled}

    def work(self, stack: int, frames: Sequence[Place], depth: int) -> tuple[Place, bool]:
        """The line, of those in the functions of the spine, or the loop to which a look belongs, and whether it is of
        work in turns of a loop beside what is compiled."""
        line, below, jitted = frames[depth], frames[:depth], bool(self._facts.run.jit.functions)
        acting, turns = line.acting, any(one.acting.loop for one in frames[depth:])
        if any(not one.library for one in below):  # a function of the user's
            return line, turns and (acting.at not in self._lines or not (jitted or self._in_compiled(below)))
        if jitted or acting.at in self._lines or self._in_compiled(frames):
            return line, False  # of JAX's programs the operations outside of them are told apart
        if _TRAINS.search(acting.code) or (line.library and any(_TRAINS.search(one.acting.code) for one in below)):
            return line, False
        around = self._loops[_function(line)]
        if acting.loop in around:
            return line, turns
        key = _function(line)
        inner = any(loop < acting.loop and (not loop or self._last[*key, loop] > acting.loop) for loop in around)
        again = any(around) or any(one.acting.loop for one in frames[depth + 1 :])
        return (self._head(stack, acting), again) if inner else (line, False)

    def _head(self, stack: int, line: Place) -> Place:
        """The head of the loop around a line on a stack."""
        loops = (loop for loop in self._facts.names.loops(stack) if _function(loop) == (line.file, line.func))
        return next(loop for loop in loops if loop.acting.line == line.loop)

    def _in_compiled(self, frames: Iterable[Place]) -> bool:
        """Whether one of the frames is a compiled function's, or of what resumes it behind a graph break."""
        return any(_function(one) in self._compiled or _RESUMES in one.acting.func for one in frames)


def runs_at(facts: Facts) -> frozenset[tuple[str, int]]:
    """The lines at which looks find what ``torch.compile`` made of a function: that of its definition."""
    return frozenset(facts.place(code).at for code, _ in facts.run.torch_compile.functions)


def run_uncompiled(facts: Facts) -> frozenset[tuple[int, str]]:
    """Stack and state of the looks that found what ``torch.compile`` was to run, where nothing was ever compiled: below
    a module's ``forward``; where no look is, at PyTorch's operations, but for those of a line that trains."""
    below, operations = set[tuple[int, str]](), set[tuple[int, str]]()
    for stack, state in facts.run.looks_before:
        frames = facts.names.frames(stack)
        if state != "import" and any(one.acting.func.rpartition(".")[2] == "forward" for one in frames):
            below.add((stack, state))
        elif state == "torch" and not any(_TRAINS.search(one.code) for one in frames[:1]):
            operations.add((stack, state))
    return frozenset(below or operations)


def looked_up(finding: Finding) -> frozenset[tuple[int | str, ...]]:
    """Stack and state of the looks that a finding here counts; empty for any other."""
    counted = finding.counted
    return counted.keys if isinstance(counted, Matching) and counted.event is Look else frozenset()


def _finding(
    facts: Facts, work: _Work, looks: Counter[tuple[int, str]], took: float, saved: float, running: float
) -> Finding:
    line, stacks = work.line, Counter[int]()
    for (stack, _), ns in looks.items():
        stacks[stack] += ns
    is_call = any(line in facts.names.frames(stack) for stack in stacks)
    place = innermost(facts.names, stacks, line, option=work.option) if is_call else line
    if place == line:  # itself, or a loop
        place = of_called(facts.place(max(stacks, key=stacks.__getitem__)))
    saves = _saves(looks)
    if saves:
        what = "again and again while a checkpoint is saved at"
    elif line.library:
        what = "in each turn of a loop within"
    elif all(facts.place(stack).at == line.at for stack in stacks):
        what = "in each turn for"
    else:
        what = "in each turn for " + ("what is called at" if is_call else "the loop of")
    where = cited(users(line))
    if len(work.lines) > 1:
        where += f", and at {enumerated([named(users(one)) for one in work.lines[1:]], NAMED)}"
    most = f", most of it at {cited(place)}" if place.at != line.at else ""
    if place.library:
        most = f", most of it in {whose(place.acting)} {function(place)}"
    if saves:
        advice = (
            "Save less often: keep a copy of what is the best so far in memory, and write it at the end of an epoch; "
            "or write it in a background thread. Where a library saves, an option of its says how often "
            "(every_n_epochs of Lightning's ModelCheckpoint, save_strategy of transformers' TrainingArguments)."
        )
    elif line.library and place.library:
        advice = (
            f"Look in {whose(place.acting)} documentation for the option that leaves {place.acting.func} out, or calls "
            "it more seldom. Larger batches, where they fit, make fewer turns."
        )
    elif (by_row := _ROW_BY_ROW.search(line.code)) and _runs_one_by_one(looks):
        advice = (
            f"Have all rows computed at once: {by_row[1]}(..., vectorize=True). Without it one backward pass runs for "
            "each element of the result. Of a function that is not compiled torch.func does so, too: jacrev, and "
            "jacfwd where it has few inputs."
        )
    elif _compiles_anew(facts, looks):
        advice = (
            "Call torch.compile once, before the loop, and keep what it returns: on a function that is given as "
            "arguments, numbers as tensors, what a new closure or object holds for each turn."
        )
    elif _is_over_tensors(facts, work, looks):
        advice = (
            "Work on the lists of all tensors at once, in place, and copy none: torch._foreach_lerp_(averages, "
            "list(model.parameters()), 1 - decay) for an average of the weights (torch.optim.swa_utils.AveragedModel "
            "with get_ema_multi_avg_fn keeps one so), torch._foreach_norm for their norms."
        )
    elif kept := _computed_of_all(facts, work, looks):
        advice = (
            f"{kept} computes from all that was kept in the turns before, and takes longer in each, until that is "
            "emptied: keep what a turn has (a metric's update()), and compute once after the loop, or at the end of an "
            "epoch. What each turn shows, compute of that turn alone, or of sums that go on."
        )
    elif _runs_one_by_one(looks):
        part = "it" if place.at == line.at else "what is called there"
        if place.at != line.at and place.loop:  # which would be unrolled
            part = "one turn of the loop there, as a function of its own"
        advice = f"Compile {part}, too (torch.compile): PyTorch's operations run there one by one. "
        if _is_between(facts, line)[0]:
            advice += "Where it only watches, do it in each tenth turn, or more seldom."
        else:
            advice += "What is the same in each turn, do once, before the loop."
    else:
        seldom = "Do it in each tenth turn, or more seldom, where it only shows or keeps something"
        instead = (
            "; work on whole arrays, or on many rows at a time, in place of a loop over elements, and with sums that "
            "go on in place of sums begun anew"
        )
        shown, before = _is_shown(line), "o once, before the loop, what is the same in each turn"
        if not _is_between(facts, line)[0]:
            advice = f"{seldom}. Else d{before}" if shown else f"D{before}"
        elif shown:
            advice = f"{seldom}, or make it a part of what is compiled"
        else:
            advice = f"It takes what each turn computes: make it a part of what is compiled. {seldom}"
        advice += f"{instead * _goes_over(facts, work, looks)}."
        if _SORTS.search(place.code):
            advice += (
                " Where only the first ones of what is sorted are used, topk (argpartition in NumPy) finds them and "
                "leaves the rest unsorted."
            )
    return facts.finding(
        "idle_gap",
        place,
        operation=_SAVES if saves else "",
        count=sum(facts.run.look_counts[key] for key in looks),
        unit="look",
        counted=Matching(Look, ("stack", "state"), frozenset(looks), detail="state"),
        cost_s=took / 1e9,
        gain_s=saved / 1e9,
        cause=(
            f"What is compiled waits {what} {where}{most}: {duration(took / 1e9)}, "
            f"by looks at the main thread, {percent(took / running)} of the time that neither compiling nor imports "
            "took."
        ),
        advice=advice,
        confidence="medium",
        also=map(users, work.lines),
    )
