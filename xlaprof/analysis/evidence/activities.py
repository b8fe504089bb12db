"""Activities of the host while the device idled: one for each line of the loop.

A slow function is sampled at many lines, and its gaps lie between many pairs of operations. An activity is all that was
called from one line of the loop: a line in the innermost function that also reaches a barrier. The line to show lies
further in, where most of the time was spent.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count, dropwhile
from operator import attrgetter
from typing import NamedTuple

from msgspec.structs import replace

from xlaprof.analysis.fold.fold import Fold
from xlaprof.analysis.fold.jit import memory
from xlaprof.analysis.model import Place
from xlaprof.analysis.names import NOWHERE, Head, Names, head
from xlaprof.analysis.places import culprit, of_called, short, users
from xlaprof.analysis.principles import DEAR, FELT, GLANCE_NS, HABIT, LITTLE, LONG_S, LOOKED_NS, MOST, NEARLY_ALL, PART
from xlaprof.analysis.timeline import host
from xlaprof.analysis.timeline.idle import Cause, Seen, Tally
from xlaprof.analysis.timeline.occasions import rhythm
from xlaprof.analysis.timeline.rhythm import Rhythm
from xlaprof.events import JitProgram, Undonated
from xlaprof.text.quantities import duration

from .facts import Facts
from .library_options import option_for

_WIDEST = 8  # bytes of an element, at most
_BYTES = 32 << 20  # of arguments that are copied: for less memory alone nobody changes a program
_AGREED_NS = HABIT / 5 * LOOKED_NS  # of looks at one line: three are no chance
_UNSURE = frozenset({host.GLIMPSE, host.CPU})
_NO_ACTIVITY = frozenset({host.TRACING, host.IMPORT})  # recording operations; once in a process

#: the thread in which the runtime's loader draws batches from the program's loader, and the key of its activity
READER = "xlaprof loader read"
_READING = ("", READER, 0)
#: how Python calls a thread that it did not start, such as autograd's: it works for the call that the host is in
_FOREIGN = "Dummy-"

#: the line at which a function is seen as it begins: the first of its decorators, or itself
_BEGINS = re.compile(r"@|(async )?def ")

_Function = tuple[str, str]  # file, function


class Activity:
    """Idle time of the device with one reason in the program. Nanoseconds."""

    def __init__(self, line: Place = NOWHERE) -> None:
        self.line = line  # of the loop
        self.causes: dict[Cause, Tally] = {}
        self.total = 0
        self.seen: Counter[int] = Counter()  # cause of host time -> ns sampled
        self.lines: Counter[int] = Counter()  # stack -> ns
        self.of: Sequence[Activity] = ()  # lines of loops that call the same
        self.option = ""  # of a library, that decides about it: its advice

    @property
    def called(self) -> list[Place]:
        """The lines of loops."""
        return [one.line for one in self.of or (self,)]

    def add(self, cause: Cause, tally: Tally) -> None:
        self.causes[cause] = tally
        self.total += tally.total
        self.lines.update(tally.lines)
        if isinstance(cause, Seen):
            self.seen[cause.cause] += tally.total

    @property
    def main(self) -> Cause:
        """The cause of most of its time."""
        return max(self.causes, key=lambda cause: self.causes[cause].total)

    @property
    def kind(self) -> int:
        """The cause of host time that it counts for; ``host.SCOPE`` for a scope."""
        main = self.main
        if isinstance(main, int):
            return min(main, host.SCOPE)
        for cause in (host.CHECKPOINT, host.DATA):
            if cause in self.seen and self.seen[cause] >= PART * self.total:
                return cause
        kind = max(self.seen, key=lambda cause: self.seen[cause], default=host.OTHER)
        return host.OTHER if kind in _UNSURE else kind

    @property
    def own_tallies(self) -> list[Tally]:
        """The tallies of the program's own causes: without the wait for a processor that other programs use."""
        return [
            tally for cause, tally in self.causes.items() if not (isinstance(cause, Seen) and cause.cause == host.CPU)
        ]

    @property
    def rhythm(self) -> Rhythm:
        """The steps in which it took long."""
        return rhythm(tally.habit for tally in self.own_tallies)

    @property
    def gaps(self) -> int:
        """The number of gaps in which it took part, at least."""
        return sum(one.gaps for one in self.of) or max(
            self.rhythm.steps, max(tally.gaps for tally in self.causes.values())
        )

    def held_at(self) -> dict[int, int]:
        """Stacks of the other thread that the host waits for -> ns; stack 0: in a library's code."""
        held: Counter[int] = Counter()
        for cause, tally in self.causes.items():
            if isinstance(cause, Seen) and (cause.at or cause.cause == host.GIL):
                held[cause.at] += tally.total
        return held

    def longest_hole(self) -> tuple[int, int]:
        """The stacks around the hole of most time."""
        holes = self.holes()
        return max(holes, key=holes.__getitem__, default=(0, 0))

    def holes(self) -> dict[tuple[int, int], int]:
        """Pairs of stacks around it -> ns."""
        found: Counter[tuple[int, int]] = Counter()
        for cause, tally in self.causes.items():
            if isinstance(cause, tuple) and not isinstance(cause, Seen):
                found[cause] += tally.total
            found.update(tally.holes)
        return found


def activity_of(several: Sequence[Activity]) -> Activity:
    """What several lines of loops call, as one activity: at the line for which it took longest."""
    if len(several) == 1:
        return several[0]
    whole = Activity(max(several, key=lambda one: one.total).line)
    whole.of = several
    for cause, tally in (pair for one in several for pair in one.causes.items()):
        whole.add(cause, tally)
    return whole


def activities(run: Fold) -> Iterator[Activity]:
    """The program's own activities in a settled run: no compiles, transfers, tracing."""
    names = run.names
    lines = (frame.acting for stack in _hand_over(run) for frame in names.frames(stack))
    spine = frozenset((line.file, line.func) for line in lines)
    recorded, turned = recording(run), _turned(run)
    by_line: dict[tuple[str, str, int], Activity] = {}
    of_cause: dict[Cause, Activity] = {}
    between: list[tuple[tuple[int, int], Tally]] = []
    waits: dict[int, Activity] = {}  # recorded as events, without a line of the loop
    for cause, tally in run.window.idle.causes.items():
        if not tally.total:
            continue
        if isinstance(cause, Seen):
            unsure = cause.cause in _UNSURE
            if cause.cause in _NO_ACTIVITY or (unsure and names.place(cause.stack) in recorded):
                continue
            line = _outset(names, cause.stack, spine)
            key = (line.acting.file, line.acting.func, line.acting.line)
            if line.acting.loop and (loop := (*key[:2], line.acting.loop)) not in turned:  # over elements
                key = loop
            if cause.cause == host.GIL or (cause.cause == host.WAIT and cause.at):
                # the thread that the host waits for decides, not the line
                if is_recorded_for(run, cause, recorded):
                    continue
                key = ("", run.holders.get(cause.at, ""), 0)
            of_cause[cause] = by_line.setdefault(key, Activity(line))
            of_cause[cause].add(cause, tally)
        elif isinstance(cause, tuple):
            between.append((cause, tally))
        elif cause in (host.DATA, host.GC) or cause >= host.SCOPE:
            waits[cause] = Activity()
            waits[cause].add(cause, tally)
    seen_in = run.window.idle.seen_in()
    for hole, tally in between:
        if seen_in.get(hole) in of_cause:
            of_cause[seen_in[hole]].add(hole, tally)
    _join(names, [one for one in between if seen_in.get(one[0]) not in of_cause], by_line)
    if host.DATA in waits:  # samples saw the same wait, or that the thread that makes the next batch has the lock
        drawn = {names.place(stack).at for stack, kind in run.pauses if kind == host.DATA}
        for key in [key for key, one in by_line.items() if key == _READING or _draws(one, drawn)]:
            for cause, tally in by_line.pop(key).causes.items():
                waits[host.DATA].add(cause, tally)
    yield from waits.values()
    yield from _by_option(names, by_line.values())


def _by_option(names: Names, found: Iterable[Activity]) -> Iterator[Activity]:
    """The same, with all as one about which one option of a library decides, under one line of the program's."""
    together: dict[tuple[str, Place], list[Activity]] = {}
    for one in found:
        place = heaviest(names, one) if one.lines else one.line
        option = option_for("idle_gap", place)
        if option:
            together.setdefault((option, users(place)), []).append(one)
        else:
            yield one
    for (option, line), several in together.items():
        whole = Activity(line) if len(several) > 1 else several[0]
        for cause, tally in (pair for one in several if one is not whole for pair in one.causes.items()):
            whole.add(cause, tally)
        whole.option = option
        yield whole


class Copied(NamedTuple):
    """A call that makes results beside large arguments which nothing needs any more."""

    event: Undonated
    share: float  # of the program's memory, on all its devices, that these arguments take
    call: Activity | None  # the host's time in it: XLA runs small programs within the call
    device: int  # ns that the device copies them: of its time in the program their share of what is read and written
    runs: int  # calls, but those of steps that were summed up


def copying(facts: Facts) -> list[Copied]:
    """Such calls, by the program looked at last: of much memory, or where the copy is felt."""
    run, found = facts.run, []
    if not run.jit.undonated:
        return []
    dispatched = ((heaviest(run.names, one).at, one) for one in activities(run) if one.kind == host.DISPATCH)
    calls = {at: one for at, one in dispatched if at[1]}
    for event in {(one.func, one.stack): one for one in run.jit.undonated}.values():
        needs = run.jit.needs.get((event.func, event.stack))
        whole = memory(needs.largest) * max(1, needs.largest.devices) if needs is not None else event.bytes
        share = event.bytes / max(1, whole)
        call, device = calls.get(facts.place(event.stack).at), 0
        if needs is not None and needs.largest.accessed:
            moved = 2 * event.bytes / (_moved(needs.largest, event) * needs.largest.devices)
            device = round(facts.busy_s({needs.largest.program}) * 1e9 * min(1.0, moved))
        took = max(call.total if call is not None else 0, device)
        felt = took >= FELT * facts.idle.window_s * 1e9 or took >= DEAR * facts.working_s * 1e9  # beside compiling
        if share >= DEAR and (event.bytes >= _BYTES or felt):
            runs = run.program_runs.get(needs.largest.program, 0) if needs is not None else 0
            found.append(Copied(event, share, call, device, max(event.calls, runs)))
    return found


def _moved(program: JitProgram, event: Undonated) -> int:
    """Bytes that a program reads and writes, at least one. What computes next to nothing for each element of its
    results copies them: XLA counts a write in place as if it went over the whole array, which is no time of its own."""
    elements = event.bytes / _WIDEST / program.devices
    needed = program.arguments + program.results + 2 * program.temporary
    copies = program.flops < LITTLE * elements and needed
    return max(1, min(program.accessed, needed) if copies else program.accessed)


def _acting(place: Place) -> _Function:
    return place.acting.file, place.acting.func


def _draws(activity: Activity, lines: Collection[tuple[str, int]]) -> bool:
    """Whether it is a wait for data at one of these lines, which draw it."""
    return activity.kind == host.DATA and activity.line.at in lines


def heaviest(names: Names, activity: Activity, share: float = MOST) -> Place:
    """The innermost line that takes ``share`` of its time; NOWHERE if it was never sampled."""
    return innermost(names, activity.lines, activity.line, share, activity.option)


def innermost(
    names: Names, stacks: Mapping[int, int], line: Place = NOWHERE, share: float = MOST, option: str = ""
) -> Place:
    """The innermost line, from ``line`` inwards, that takes ``share`` of the ns spent at ``stacks``; of libraries, of
    that which the program called, or of one further in, about which ``option`` of a library decides."""
    lines = []
    for stack, ns in stacks.items():
        frames = names.frames(stack)
        outward = frames.index(line) if line in frames else len(frames) - 1
        lines += [(frames[outward::-1], ns)] if frames else []
    whole = sum(ns for _, ns in lines)
    found = NOWHERE
    for depth in count():
        lines = [(frames, ns) for frames, ns in lines if depth < len(frames)]
        at: Counter[Place] = Counter()
        for frames, ns in lines:
            at[frames[depth]] += ns
        best = max(at, key=at.__getitem__, default=NOWHERE)
        if not at or (at[best] < share * whole and depth):
            break
        found = best
        lines = [(frames, ns) for frames, ns in lines if frames[depth] == best]
    found = of_called(found)
    if option and option_for("idle_gap", found) != option and stacks:
        inward = reversed(names.frames(max(stacks, key=stacks.__getitem__)))
        found = next((one for one in inward if option_for("idle_gap", one) == option), found)
    return found


def element_loop(facts: Facts, place: Place) -> Place:
    """The loop that goes over elements within one turn of the program's loop, where ``place`` lies in one: no barrier,
    and no call of what is compiled, lies in it. Else NOWHERE."""
    line = place.acting
    if not line.loop:
        return NOWHERE
    loop = replace(line, line=line.loop, code="")
    return loop if head(loop) not in facts.once(turned) else NOWHERE


def filling(facts: Facts, activity: Activity) -> Place:
    """The head of the loop over elements that takes most of its time, whatever of the loop's lines looks found, and of
    those of the function around it at which that begins. NOWHERE: no loop does.

    Python lets another thread look only where a function begins and where a loop goes back: of a pure Python loop the
    lines seen are those, not where the time goes.
    """
    loops, begun = dict[Head, Place](), Counter[_Function]()
    took = Counter[Head]()
    for stack, ns in activity.lines.items():
        heads = {head(one): one for one in facts.names.loops(stack) if not one.library}
        frames = [one for one in facts.names.frames(stack) if not one.library]
        within = {head(loop) for one in frames if (loop := element_loop(facts, one)).line} & heads.keys()
        if frames and _BEGINS.match(frames[0].code):
            begun[_acting(frames[0])] += ns
        loops.update((one, heads[one]) for one in within)
        took.update(dict.fromkeys(within, ns))
    for (file, func), ns in begun.items():
        inside = Counter({one: took[one] for one in took if one[:2] == (file, func)})
        took.update(dict.fromkeys((one for one, _ in inside.most_common(1)), ns))
    best, ns = next(iter(took.most_common(1)), (head(NOWHERE), 0))
    return loops[best] if ns and ns >= MOST * activity.lines.total() else NOWHERE


def is_at_one_line(facts: Facts, activity: Activity, loop: Place, line: Place) -> bool:
    """Whether nearly all looks found the ``loop`` at this ``line`` of it, or at what that calls."""
    took = 0
    for stack, ns in activity.lines.items():
        outward = dropwhile(lambda one: one.at != line.at, facts.names.frames(stack))
        took += ns * any(head(element_loop(facts, one)) == head(loop) for one in outward)
    return took >= NEARLY_ALL * activity.lines.total()


def turned(facts: Facts) -> frozenset[Head]:
    """The loops whose turns hand work to the device, on whatever level of the stack."""
    return _turned(facts.run)


def _turned(run: Fold) -> frozenset[Head]:
    return frozenset[Head]().union(*map(run.names.heads, _hand_over(run)))


def _hand_over(run: Fold) -> list[int]:
    """The stacks at which a barrier is reached, or a jitted function is called."""
    stacks = [*run.sites, *run.jit.callers]
    if stacks:
        return stacks
    # work that a watched device is handed, by PyTorch's own functions
    return [stack for stack, state in (*run.looks, *run.looks_waiting) if state in ("torch", "device")]


def recording(run: Fold) -> frozenset[Place]:
    """Lines that record operations: on a busy machine a single sample there most likely shows the recording."""
    return frozenset(run.names.place(stack) for stack in run.recording)


def is_librarys(run: Fold, activity: Activity, place: Place) -> bool:
    """Whether all that is known of it is that it lies between two lines of one function of a library's.

    Nothing that the program can move: looks at the main thread found no line of the program's below that function, but
    for those that record operations.
    """
    if not place.library or activity.lines or isinstance(activity.main, int):
        return False
    recorded, called = recording(run), 0
    for (stack, _), ns in run.looks.items():
        frames = run.names.frames(stack)
        at = next((i for i, one in enumerate(map(_acting, frames)) if one == _acting(place)), 0)
        called += ns * any(not one.library and one not in recorded for one in frames[:at])
    return called < LOOKED_NS


def is_recorded_for(run: Fold, cause: Cause, recorded: frozenset[Place]) -> bool:
    """Whether a line that records waits for a thread that records for it, as the backward pass has one."""
    if not isinstance(cause, Seen) or cause.cause not in (host.GIL, host.WAIT):
        return False
    return run.holders.get(cause.at, "").startswith(_FOREIGN) and run.names.place(cause.stack) in recorded


def _outset(names: Names, stack: int, spine: frozenset[_Function]) -> Place:
    """The line of the loop from which the host came to ``stack``."""
    frames = names.frames(stack)
    for frame in frames:
        if (frame.acting.file, frame.acting.func) in spine:
            return frame
    return frames[-1] if frames else NOWHERE


def _join(
    names: Names, between: list[tuple[tuple[int, int], Tally]], by_line: dict[tuple[str, str, int], Activity]
) -> None:
    """Add gaps too short for the idle sampler to the activity that it saw between the same lines in longer gaps."""
    for hole, tally in between:
        before, after = names.bracket(*hole)
        seen = [one for one in by_line.values() if one.seen and _lies_between(one.line, before, after)]
        if seen:
            max(seen, key=lambda one: one.total).add(hole, tally)
            continue
        key = (f"{short(before)}-{short(after)}", after.acting.func, after.acting.line)
        by_line.setdefault(key, Activity(culprit(before, after))).add(hole, tally)


def _lies_between(line: Place, before: Place, after: Place) -> bool:
    line, before, after = line.acting, before.acting, after.acting
    if len({(one.file, one.func) for one in (line, before, after)}) > 1:
        return False
    if before.line <= after.line:
        return before.line <= line.line <= after.line
    return line.line >= before.line or line.line <= after.line  # back to the head of the loop


# -- batches


def drawing(facts: Facts, maker: Place, seen: Mapping[int, int]) -> Place:
    """The line of what makes a batch that takes most of its time, as looks at who draws found it; else it.

    ``maker`` is where a size is found, which need not take long: of few looks those that agree say more.
    """
    lines: Counter[Place] = Counter()
    for stack, ns in (*((stack, ns) for (stack, _), ns in facts.run.looks_drawing.items()), *seen.items()):
        own = (one for one in facts.names.frames(stack) if not one.library)  # whatever of a library's it runs
        inside = (one for one in own if (one.file, one.func) == (maker.file, maker.func))
        if (line := next(inside, None)) is not None:
            lines[line] += ns
    place, ns = next(iter(lines.most_common(1)), (maker, 0))
    whole = lines.total()
    return place if whole >= LOOKED_NS or (whole >= _AGREED_NS and ns >= NEARLY_ALL * whole) else maker


def load_ahead(facts: Facts, loader: bool, total: float, waits: int) -> str:
    """What to do about ``waits`` waits for a batch, of ``total`` ns.

    Workers take a second or so to start, with all that the process has loaded, and some ms to hand a batch over.
    """
    ahead = f", or load ahead: {facts.words.load_ahead}"
    if not loader:
        ahead = f", or make it ahead, in {facts.words.background}"
    elif total < LONG_S * 1e9 and total < GLANCE_NS * waits:
        ahead = (
            "; to load ahead does not pay, for workers take longer to start, and to hand a batch over, than these waits"
        )
    return (
        "Make a sample cheaper (once, before the loop over epochs, what is the same in each; with operations on whole "
        f"arrays in place of a loop over elements){ahead}."
    )


def workers_started(facts: Facts) -> tuple[str, Place] | None:
    """The advice, and the line that draws, where starting workers for each pass is a good part of the wait for data."""
    starts = [one for one in facts.run.batches if one.workers]
    stacks, waited = {one.stack for one in starts}, sum(one.dur for one in starts)
    whole = sum(one.total for (stack, cause), one in facts.run.pauses.items() if cause == host.DATA and stack in stacks)
    if len(starts) < HABIT or waited < PART * whole:
        return None
    longest = max(starts, key=attrgetter("dur"))
    advice = (
        f"Pass persistent_workers=True to the DataLoader: its workers ({longest.workers}) are started anew in each of "
        f"{len(starts)} passes, and the first batch of each waits for that, {duration(waited / 1e9)} in all. For "
        "batches that are made quickly, num_workers=0 may take less."
    )
    return advice, facts.place(longest.stack)


def maker_of(facts: Facts) -> Place:
    """The dataset, or collate function, that makes the batches; NOWHERE: there are several, or it is not known."""
    made = {facts.place(one.made) for one in facts.run.batches if one.made}
    return made.pop() if len(made) == 1 else NOWHERE
