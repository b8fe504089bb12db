"""JAX's operations outside of any jitted function, and calls of jitted functions one by one where one call would do:
what of the program runs them, and how long the host was there."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from itertools import dropwhile, pairwise
from typing import NamedTuple

from xlaprof.analysis.evidence.counted import Matching
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.reading import SCALARS
from xlaprof.analysis.fold.jit import JitRecord
from xlaprof.analysis.fold.tallies import Timed
from xlaprof.analysis.model import Finding, Place
from xlaprof.analysis.names import NOWHERE
from xlaprof.analysis.principles import DEAR, FELT, HABIT, LOOKED_NS, MANY, MOST, NEARLY_ALL, NOTICED, PART
from xlaprof.analysis.recompiles.jitted.sorting import TRACING, compiled_outside, sort_out
from xlaprof.analysis.statements import called, names, nodes
from xlaprof.analysis.timeline import host
from xlaprof.analysis.timeline.idle import Cause, Seen
from xlaprof.analysis.uses import Use, read_of
from xlaprof.analysis.whatif.one_program import compiling

_OF_KEYS = re.compile(r"^(_?threefry|_?random|unstack$|stage$)")  # operations on keys, and their unpacking
_NUMPY = frozenset({"np", "numpy"})
_LARGE = 1_024  # bytes of data that comes again: numbers and positions come by chance
_MANY = 200  # operations of a function: fewer are set-up
_EACH_NS = 200_000  # that one takes Python, on a busy machine: what is beyond is the jitted function's
_LONGEST_NS = 5_000_000  # the same, of those that call Python functions to be traced


_Loop = tuple[str, str, int]  # file, function and line of its head; below 0 a comprehension


class Body(NamedTuple):
    """What would be one jitted function."""

    file: str
    func: str
    call: Place  # the line of a loop that calls it; NOWHERE: its own lines are the loop's
    loop: int = 0  # of these the line of the loop's head, below 0 that of a comprehension

    @property
    def around(self) -> _Loop:
        """The loop that repeats it, whose head has no line (0) where none is known to."""
        at = self.call if self.call.line else self
        return at.file, at.func, at.loop

    @property
    def is_repeated(self) -> bool:
        return bool(self.call.line or self.loop)


class First(NamedTuple):
    """What was compiled for the first time of operations that are no set-up."""

    ns: int = 0
    programs: int = 0


class Eager(NamedTuple):
    """Operations of one body."""

    counts: dict[int, int]  # by stack of their lines, the most frequent first
    turns: dict[int, str]  # of these lines, those that call a jitted function in a comprehension, and its name
    ns: int  # that the main thread was seen at these lines
    felt_ns: int  # of it, without what the device hides
    kept_ns: int  # of that, work of the device that one program has, too
    first: First  # of many programs, where that is much
    spare_ns: int  # of all that, what one program spares, with what is compiled less or, below that, more
    lines: frozenset[tuple[str, int]]  # all lines on the way to them
    sent: tuple[int, ...]  # stacks of those that bring the same to the device again, and compute much of it


_WRITES = "/flax/nnx/"  # a library whose jitted functions update the objects that they are given


def bodies(facts: Facts) -> dict[Body, Eager]:
    """Those that run many such operations, and take long."""
    turns = facts.once(in_comprehensions)
    outside = {stack: one.count for stack, one in facts.run.jit.outside.items()}
    outside |= {stack: max(facts.run.executions(stack), outside.get(stack, 0)) for stack in turns}
    owner = _owners(facts, outside)
    again = _mostly_compiled(facts)
    groups: dict[Body, list[int]] = {}
    for stack in sorted(outside, key=lambda stack: -outside[stack]):
        body = owner(stack)
        if body is not None and facts.place(stack).at not in again:
            groups.setdefault(body, []).append(stack)
    looped = {body[:2] for body in groups if body.loop}
    groups = {
        body: _of_the_loop(facts, body, one, turns)
        for body, one in groups.items()
        if body.is_repeated or body[:2] not in looped
    }
    computing = {stack for stack in outside if stack in turns or _computes(facts, stack)}
    many = {
        body: one
        for body, one in groups.items()
        if sum(outside[at] for at in one if at in computing) >= _MANY or _first(facts, body, one).ns
    }
    lines = {body: frozenset(place.at for stack in one for place in way(facts, stack)) for body, one in many.items()}
    jitted = facts.once(jitted_calls)
    by_line = {facts.place(stack).at: body for body, one in many.items() for stack in one}
    mixed = _mixed(facts)
    looks = Counter[Body]()
    unseen = Counter(facts.run.jit.compiled_at)
    unseen.subtract(facts.once(of_other_calls))
    before, since = looks_beside(facts, unseen)
    looks_at = Counter[tuple[Body, tuple[str, int]]]()  # the same by line
    since_ns = Counter[Body]()  # of it, since the first program: before it the device hides nothing
    for table in (before, since):
        for stack, ns in table.items() if lines else ():
            body, at = owner(stack), facts.place(stack).at
            if body not in lines or at not in lines[body]:
                # the operations are known by the first way to their line; by way of a jitted call it is traced
                traced = any(one.at in jitted for one in facts.names.frames(stack))
                body = None if traced else by_line.get(at)
            if body in lines and at in lines[body] - again:
                if at in mixed:
                    ns = min(ns, mixed[at])
                    mixed[at] -= ns
                looks[body] += ns
                looks_at[body, at] += ns
                since_ns[body] += ns * (table is since)
    again_ns = facts.once(again_outside)
    spent = {}
    for body, one in many.items():  # what a line did for longer than its operations can take was something else
        most = sum(outside[at] * _LONGEST_NS + facts.run.executed_at.get(at, Timed()).ns for at in one)
        spent[body] = max(0, min(looks[body] - sum(again_ns[stack] for stack in one), most))
    found = {}
    for body, ns in spent.items():
        compiling = sum(compiled_again(facts, stack) for stack in many[body])
        single = (stack for stack in many[body] if stack not in turns)  # operations: one program takes less
        own = {program for stack in single for program in facts.ran_at.get(stack, ())}
        hidden = facts.hidden_s(max(0, min(ns, since_ns[body]) - compiling) / 1e9, own)
        counts = {stack: outside[stack] for stack in many[body]}
        called_in = {stack: turns[stack] for stack in counts if stack in turns}
        felt, kept, less = ns - round(hidden * 1e9), 0, 0
        first = _first(facts, body, many[body])
        sent = () if first.ns else brought_again(facts, {at: looks_at[body, at] for at in lines[body]})
        if not sent:  # what is computed once, before the loop, is spared whole
            kept = min(felt, round(_kept_s(facts, own) * 1e9))
            less = _compiled_less(facts, [stack for stack in counts if stack not in turns])
        most = compiling + first.ns + _of_steps(facts, many[body])
        spare = max(0, min(felt + first.ns, felt - kept + less, most))
        found[body] = Eager(counts, called_in, ns, felt, kept, first, spare, lines[body], sent)
    return {body: eager for body, eager in found.items() if _is_long(facts, body, eager)}


def _owners(facts: Facts, outside: Mapping[int, int]) -> Callable[[int], Body | None]:
    """What tells the body of a stack. ``outside``: operations by stack. A loop is a body, with those in it, and with
    what it calls, where most operations are its own, and nothing in it is jitted or done on the host."""
    jitted = calls_jitted(facts).union(one[:2] for one in facts.once(on_host)) if outside else frozenset()
    own: Counter[_Loop] = Counter()  # of a loop: how many more operations it has itself than what it calls has
    ends: dict[_Loop, int] = {}  # of loops that have some: the last such line
    for stack, count in outside.items():
        body = _body(facts, stack, jitted)
        if body is not None and body.call.line:
            own[body.around] -= count
        elif body is not None and (head := _head(facts, body, stack)):
            own[head] += count
            lines = (one.line for one in way(facts, stack) if head[:2] == (one.file, one.func))
            ends[head] = max(ends.get(head, 0), *lines)
    calls = [one for stack in facts.run.jit.callers for one in way(facts, stack)]
    calling = {
        (file, func, head)
        for (file, func, head), end in ends.items()
        if any((file, func) == (one.file, one.func) and (one.loop == head or head < one.line <= end) for one in calls)
    }
    whole = {loop for loop in ends if own[loop] >= 0} - calling - facts.once(on_host)

    def owner(stack: int) -> Body | None:
        body = _body(facts, stack, jitted)
        if body is None:
            return None
        called = bool(body.call.line)
        loop = body.around if called else _head(facts, body, stack)
        if loop is None or (called and loop not in whole):
            return body
        file, func, head = loop
        around = [at for (*of, at), end in ends.items() if [file, func] == of and 0 < at < abs(head) <= end]
        whose = (file, func) if called else body[:2]
        return Body(*whose, NOWHERE, min([head, *around], key=abs))

    return owner


def _mostly_compiled(facts: Facts) -> set[tuple[str, int]]:
    """Lines of operations outside of jitted functions that a finding tells as compiled again, for what varies, where
    that is most of what the main thread was seen to do there: to dispatch them is dear where few of many are."""
    told, seen = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for stack, ns in facts.once(again_outside).items():
        told[facts.place(stack).at] += ns
    for (stack, _), ns in (*facts.run.looks_before.items(), *facts.run.looks.items()) if told else ():
        seen[facts.place(stack).at] += ns
    return {at for at in compiled_outside(facts) if told[at] >= MOST * seen[at]}


def _of_the_loop(facts: Facts, body: Body, stacks: list[int], turns: Container[int]) -> list[int]:
    """Those of a body's lines that its loop repeats. What the same function does beside it, as a set-up, is none of
    them, and neither are few operations of a loop or a comprehension of their own, where another loop calls jitted
    functions: layers that are made. Where nobody saw a loop, what calls the function repeats it, if anything does."""
    heads = {stack: head for stack in stacks if (head := _head(facts, body, stack)) is not None}
    called = {_head(facts, body, stack) for stack in facts.run.jit.callers}
    count = Counter[tuple[str, str, int]]()
    for stack, head in heads.items():
        count[head] += facts.run.jit.outside[stack].count if stack in facts.run.jit.outside else 0
    set_up = {head for head in count if head not in called and count[head] < _MANY} if called & count.keys() else set()
    repeated = [stack for stack in stacks if stack in turns or heads.get(stack) not in {None, *set_up}]
    return repeated or [stack for stack in stacks if not _runs_once(facts, stack)]


def _runs_once(facts: Facts, stack: int) -> bool:
    """Whether the program comes by a line once, as by a module's: it is in no loop on the way there, and what it calls
    is not called back by a library, which may do so again and again."""
    frames = [place for place in facts.names.frames(stack) if place.line]
    own = [*dropwhile(lambda one: one.library, frames)]
    loops = any(one.loop or nodes(one.code, ast.comprehension) for one in own)
    return bool(own) and own[-1].func == "<module>" and not loops and not any(one.library for one in own)


def _head(facts: Facts, body: Body, stack: int) -> tuple[str, str, int] | None:
    """What repeats a line of a body, as of the body's own lines: file, function and line of a loop's head, below 0 that
    of a comprehension. What its callees loop over is over within one turn. ``None``: nothing."""
    own = dropwhile(lambda one: (one.file, one.func) != body[:2], way(facts, stack))
    return next(
        ((one.file, one.func, one.loop or -one.line) for one in own if one.loop or nodes(one.code, ast.comprehension)),
        None,
    )


def _of_steps(facts: Facts, stacks: Iterable[int]) -> int:
    """ns that all steps spend beside compiling, where these lines are of their loop: one program spares no more. Of
    other loops: the whole run."""
    steps = facts.step_count and _are_in_steps(facts, stacks)
    return round((facts.working_s if steps else facts.wall_s) * 1e9)


def _first(facts: Facts, body: Body, stacks: list[int]) -> First:
    """Compiling the operations of a function for the first time, each as a program of its own: one that the loop
    of the steps calls, again and again, is no set-up. None, where these are few, or are made in no time."""
    jit = facts.run.jit
    programs = sum(jit.functions[stack, 0].programs for stack in stacks if (stack, 0) in jit.functions)
    took = sum(jit.compiled_at.get(stack, 0) - facts.once(of_other_calls)[stack] for stack in stacks)
    again = max((jit.outside[stack].count for stack in stacks if stack in jit.outside), default=0) >= HABIT
    dear = body.call.line and programs >= MANY and took >= FELT * facts.wall_s * 1e9
    return First(took, programs) if dear and again and _are_around_steps(facts, stacks) else First()


def operations_of(finding: Finding) -> set[int]:
    """Stacks of the operations that an ``op_by_op`` finding counts; none of another."""
    if finding.kind != "op_by_op" or not isinstance(finding.counted, Matching):
        return set()
    return {int(stack) for (stack,) in finding.counted.keys}


def compiled_first(facts: Facts, finding: Finding) -> First:
    """Such compiling that an ``op_by_op`` finding tells of."""
    told = operations_of(finding)
    found = (one.first for one in facts.once(bodies).values() if not told.isdisjoint(one.counts))
    return next((one for one in found if one.ns), First())


def spared_at(facts: Facts, finding: Finding) -> dict[int, int]:
    """ns of the device's work, by stack, that the operations of an ``op_by_op`` finding take and one program spares."""
    told = operations_of(finding)
    kept = next((one.kept_ns for one in facts.once(bodies).values() if not told.isdisjoint(one.counts)), 0)
    ran = {stack: facts.run.executed_at[stack].ns for stack in told if stack in facts.run.executed_at}
    # of steps that were summed up only the device's time as a whole is known
    every = sum(there.ns for there in facts.run.executed_at.values())
    took = facts.idle.busy_s * 1e9 * sum(ran.values()) / max(1, every)
    return {stack: round(ns * max(0.0, 1 - kept / took)) for stack, ns in ran.items() if took}


def _are_in_steps(facts: Facts, stacks: Iterable[int]) -> bool:
    """Whether these lines are of a loop that calls jitted functions, whose turns the steps are."""
    loops = [
        {(one.file, one.func, one.loop) for stack in some for one in way(facts, stack) if one.loop}
        for some in (facts.run.jit.callers, stacks)
    ]
    return not loops[0].isdisjoint(loops[1])


def _are_around_steps(facts: Facts, stacks: Iterable[int]) -> bool:
    """The same, also of a loop around such a one: what it repeats behind the steps, as an evaluation. From a loop's
    head to each of its lines all of that function is in it."""
    if _are_in_steps(facts, stacks):
        return True
    ends: dict[tuple[str, str, int], int] = {}
    for one in (one for stack in stacks for one in way(facts, stack) if one.loop):
        key = (one.file, one.func, one.loop)
        ends[key] = max(ends.get(key, 0), one.line)
    lines = {(one.file, one.func, one.line) for stack in facts.run.jit.callers for one in way(facts, stack)}
    return any(
        (file, func) == (other, its) and head < line <= end
        for (file, func, head), end in ends.items()
        for other, its, line in lines
    )


def brought_again(facts: Facts, spent: Mapping[tuple[str, int], int]) -> tuple[int, ...]:
    """Stacks of the program's own lines that bring the same to the device again and again, and hardly anything else:
    what is computed of it comes out the same, up to what else goes in. ``spent``: ns at each line; none, where these
    are no large part of it all. What a library brings there of what it is given is of this computing alone."""
    found = []
    for (stack, again), one in facts.run.sent.items():
        place, new = facts.place(stack), facts.run.sent.get((stack, False))
        whole = one.bytes + (new.bytes if new is not None else 0)
        many = again and one.count >= HABIT and one.bytes >= max(_LARGE * one.count, NEARLY_ALL * whole)
        if many and not place.library and spent.get(place.at, 0) >= PART * sum(spent.values()):
            found.append(stack)
    return tuple(found)


def _kept_s(facts: Facts, own: Collection[int]) -> float:
    """Seconds of the device's work that operations have as one program, too: what a run of each of these programs takes
    beyond a run of the quicker ones, which is what it takes that there is a run at all."""
    run = facts.run
    runs = {one: run.program_runs[one] for one in own if run.program_runs.get(one) and run.program_busy.get(one)}
    means = {one: run.program_busy[one] / times for one, times in runs.items()}
    if not means:
        return 0.0
    least = min(_EACH_NS, sorted(means.values())[len(means) // 4])
    beyond = sum(times * max(0.0, means[one] - least) for one, times in runs.items())
    return facts.busy_s(own) * beyond / sum(run.program_busy[one] for one in runs)


def _compiled_less(facts: Facts, stacks: Iterable[int]) -> int:
    """ns for which one program of these operations, or one for each of their shapes, compiles less for the first time
    and for other shapes; below 0: more."""
    took, programs, ops, times = 0, 0, 0, 1
    for stack in stacks:
        one = facts.run.jit.functions.get((stack, 0))
        if one is not None:
            took, programs, ops = took + one.dur, programs + one.programs, ops + one.ops
            names = len(facts.run.jit.outside[stack].functions)
            times = max(times, one.programs // max(1, names))
    return took - round(compiling(facts.run.jit).one(ops, took, programs, times)) if programs else 0


def looks_beside(facts: Facts, compiled: Mapping[int, int]) -> tuple[dict[int, int], dict[int, int]]:
    """ns that the main thread was seen at each stack, before the first program and since, without imports and without
    as much as was ``compiled`` there."""
    left, found = Counter(compiled), (dict[int, int](), dict[int, int]())
    for spent, table in zip(found, (facts.run.looks_before, facts.run.looks), strict=True):
        for (stack, state), ns in table.items():
            if state != "import":
                spent[stack] = spent.get(stack, 0) + ns - min(ns, left[stack])
                left[stack] -= min(ns, left[stack])
    return found


def idle_at(facts: Facts, line: Place, idle: Mapping[Cause, float]) -> float:
    """ns of the ``idle`` time in which the main thread was at a line, or in what that calls: seen in the gap, or by its
    share of the looks in those of which nothing else is known."""

    def there(stack: int) -> bool:
        return any(one.at == line.at for one in way(facts, stack))

    looks = looks_beside(facts, facts.run.jit.compiled_at)[1]
    share = sum(ns for stack, ns in looks.items() if there(stack)) / max(1, sum(looks.values()))
    seen = (ns for cause, ns in idle.items() if isinstance(cause, Seen) and there(cause.stack))
    return share * idle.get(host.OTHER, 0.0) + sum(seen)


def _mixed(facts: Facts) -> dict[tuple[str, int], int]:
    """Lines that call jitted functions -> ns that such operations can have taken there, where most of what they run
    are such; else nobody knows which of the two took the time: 0."""
    outside, ran = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for stack, one in facts.run.jit.outside.items():
        outside[facts.place(stack).at] += one.count
    for stack, there in facts.run.executed_at.items():
        ran[facts.place(stack).at] += there.count
    calls = facts.once(jitted_calls).difference(facts.place(stack).at for stack in facts.once(in_comprehensions))
    most = {at: outside[at] * (outside[at] >= NEARLY_ALL * (outside[at] + ran[at])) for at in calls}
    return {at: count * _EACH_NS for at, count in most.items()}


def _computes(facts: Facts, stack: int) -> bool:
    """Whether a line does more than to split a key, as each step of a program does."""
    return not all(_OF_KEYS.search(facts.text(name)) for name in facts.run.jit.outside[stack].functions)


def in_comprehensions(facts: Facts) -> dict[int, str]:
    """Stacks of lines that call a jitted function in a comprehension, and its name: no turn needs another's result,
    but where a turn binds it to a name, or writes it into what it is given, as functions under ``nnx.jit`` do."""
    found = {}
    for one in facts.run.jit.functions.values():
        name = facts.text(one.name)
        for stack in one.callers if name else ():
            code, library = facts.place(stack).code, facts.place(stack).library
            loops = [node for node in nodes(code, ast.expr) if isinstance(node, ast.ListComp | ast.GeneratorExp)]
            if nodes(code, ast.NamedExpr) or any(_WRITES in line.file for line in library):
                continue
            inside = {call for loop in loops for call in ast.walk(loop.elt) if isinstance(call, ast.Call)}
            if inside and (name in map(called, inside) or inside.issuperset(nodes(code, ast.Call))):
                found[stack] = name
    return found


def _is_long(facts: Facts, body: Body, eager: Eager) -> bool:
    """Whether what one program spares is felt in the run or, of what is repeated, in the time of the steps beside
    compiling."""
    beside = eager.spare_ns - sum(compiled_again(facts, stack) for stack in eager.counts)
    in_steps = body.is_repeated and beside >= DEAR * facts.working_s * 1e9
    felt = in_steps or eager.spare_ns >= FELT * facts.wall_s * 1e9
    if eager.first.ns and eager.spare_ns >= NOTICED * facts.wall_s * 1e9:
        return True
    return eager.ns >= LOOKED_NS and felt


def again_outside(facts: Facts) -> Counter[int]:
    """ns of compiling operations outside of jitted functions again, as findings of this kind tell it, by Stack id."""
    return _outside_ns(one for group in facts.once(sort_out).found for one in group.records)


def of_other_calls(facts: Facts) -> Counter[int]:
    """ns of compiling operations outside of jitted functions that earlier calls had needed with other arguments, by
    Stack id. Not what traces another function than before: a jitted function would need that program, too."""
    found = Counter(facts.run.jit.again_at)
    traced = (one for one in facts.run.jit.records if facts.text(one.event.func) in TRACING)
    found.subtract(_outside_ns(one for one in traced if one.other or one.apart))
    return found


def _outside_ns(records: Iterable[JitRecord]) -> Counter[int]:
    found = Counter[int]()
    for one in records:
        found[one.event.stack] += 0 if one.event.code else one.event.dur
    return found


def compiled_again(facts: Facts, stack: int) -> int:
    """ns of compiling a line's operations for other shapes: a part of what they cost. The first time one function would
    take, too; what a finding tells as compiled again is its."""
    return max(0, facts.once(of_other_calls)[stack] - facts.once(again_outside)[stack])


def way(facts: Facts, stack: int) -> list[Place]:
    """The lines of the program on a stack, innermost first."""
    return [place for place in facts.names.frames(stack) if place.line and not place.library]


def jitted_calls(facts: Facts) -> frozenset[tuple[str, int]]:
    """The lines that call jitted functions: handing over what they are given, and dispatching, takes the host there."""
    return frozenset(facts.place(stack).at for stack in facts.run.jit.callers)


def calls_jitted(facts: Facts) -> frozenset[tuple[str, str]]:
    """The functions that call jitted ones, themselves or by others: none of them can be jitted as a whole."""
    callers = (place for stack in facts.run.jit.callers for place in way(facts, stack))
    return frozenset((place.file, place.func) for place in callers)


def on_host(facts: Facts) -> frozenset[tuple[str, str, int]]:
    """The functions, and the loops in them, that have work of the host in their turns, as an environment's step: none
    of them can be jitted as a whole, whatever else is done about it. NumPy was seen to work in it at a line that runs
    nothing of JAX's, or it goes on with what it brings to the host, an array or a whole number."""
    computing = {facts.place(stack).at for stack in (*facts.run.jit.outside, *facts.run.jit.callers)}
    found = list[Place]()
    for stack in {stack for stack, _ in facts.run.looks}:
        line, lines = facts.place(stack), way(facts, stack)
        if line.at not in computing and _calls_numpy(line.code) and any(one.loop for one in lines):
            found += lines
    for stack, op in facts.run.reads:
        scalar = facts.text(op) in SCALARS
        read = read_of(facts.place(stack).code, scalar=scalar)
        if read.written and read.use == (Use.WHOLE if scalar else Use.OTHER):  # at the end of a function it may be one
            found += (one for one in way(facts, stack) if one.loop)
    return frozenset((one.file, one.func, one.loop) for one in found)


def _calls_numpy(code: str) -> bool:
    roots = (next(reversed([*names(call.func)]), "") for call in nodes(code, ast.Call))
    return not _NUMPY.isdisjoint(roots)


def _body(facts: Facts, stack: int, jitted: frozenset[tuple[str, str]]) -> Body | None:
    """The largest function on a stack that a loop calls and that has nothing in it that is jitted, or done on the
    host: its call is one program.

    What a library calls, as the layers of a model, is not called by the program. None: no line is known.
    """
    frames = facts.names.frames(stack)
    inside = max((at for at, place in enumerate(frames) if place.library), default=-1) + 1
    lines = [place for place in frames[inside:] if place.line]
    # a lambda or a comprehension is a part of the line that it is on
    lines = [place for place in lines if not place.func.rpartition(".")[2].startswith("<l")] or lines
    if not lines:
        return None
    for callee, line in reversed(list(pairwise(lines))):
        if line.loop and (callee.file, callee.func) not in jitted:
            return Body(callee.file, callee.func, line)
    return Body(lines[0].file, lines[0].func, NOWHERE)
