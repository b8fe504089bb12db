"""op_by_op: JAX's operations outside of any jitted function, one after the other, in a loop; or calls of a jitted
function, one after the other in a comprehension, whose turns need nothing of each other.

Each is dispatched from Python and is a program of its own, which XLA cannot fuse with the next. Cost: the time that the
main thread was seen at these lines, without compiling for the first time, which one function would take, too (but where
that is much, of many programs that a function needs which the loop of the steps calls), and
without the share that the device hides: beside it that runs jitted functions, which the host would wait for. Gain: what
one program spares of it, without work of the device that it has, too, and with what it takes to compile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from xlaprof.analysis.evidence.counted import Matching
from xlaprof.analysis.evidence.facts import Facts, listed
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.evidence.reading import ELEMENTS, SCALARS
from xlaprof.analysis.evidence.reads import goes_over, takes_outside
from xlaprof.analysis.model import Finding, Place
from xlaprof.analysis.names import NOWHERE
from xlaprof.analysis.places import short, users
from xlaprof.analysis.principles import LITTLE, MOST, NAMED, NEARLY_ALL, PART
from xlaprof.analysis.recompiles.eager import Body, Eager, bodies, on_host, way
from xlaprof.analysis.recompiles.jitted.sorting import of_other_sizes
from xlaprof.analysis.statements import written_in_part
from xlaprof.analysis.uses import Use, read_of
from xlaprof.events import Execute, OutsideOperations
from xlaprof.text.quantities import duration, percent, plural
from xlaprof.text.strings import enumerated
from xlaprof.vocabulary import fill

#: each call of it gives scan a function that is new
_UNJITTED = "and a scan outside of a jitted function is compiled at every call"
_SCANNED = (
    "A whole loop can be in it, as a jax.lax.scan or fori_loop, or as jax.lax.map or jax.vmap where no turn needs the "
    f"result of another ({_UNJITTED}). "
)
#: traced is what Python does in the first call, and no more after that
_DRAWN = (
    "Draw NumPy's random numbers before it, and pass them as arguments: drawn within, every call would have those of "
    "the first."
)

#: of work that no program makes shorter
_THE_SAME = (
    " What it computes of the same data in each turn, as a factorization of a matrix that does not change, compute "
    "once, before the loop, and keep the result: the device does it again each time."
)
#: of what is written outside of jit: ``x = x.at[i].set(value)``
_IN_PLACE = (
    " Give it {array} for good (donate_argnums, and of Equinox donate='all'), which is copied whole where a part of it "
    "is written: XLA then writes in place."
)
#: a part of the path of the library whose jit the program uses, and what its modules need
_MODULES = (
    "/equinox/",
    " Where a module of Equinox is handed to it: equinox.filter_jit, in place of jax.jit, which takes arrays alone.",
)


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each function of the program's that runs such operations."""
    for body, eager in facts.once(bodies).items():
        yield _finding(facts, body, eager)


def _finding(facts: Facts, body: Body, eager: Eager) -> Finding:
    counted = facts.run.jit.outside
    outside = [stack for stack in eager.counts if stack in counted]
    count = sum(counted[stack].count for stack in outside)
    names = dict.fromkeys(facts.text(one) for stack in outside for one in sorted(counted[stack].functions))
    shown = ", ".join([name for name in names if name][:5])
    each = f", {count / facts.step_count:,.0f} in a step" if facts.step_count > 1 else ""
    does = [f"runs {plural(count, 'operation')} ({shown}) outside of any jitted function{each}"] * bool(count)
    does += [f"calls {name} for one element after the other" for name in dict.fromkeys(eager.turns.values())]
    name = body.func if body.func[:1] != "<" else ""  # a module's
    called = f", called in a loop at {short(body.call)}," if body.call.line else ""
    lines = [facts.place(stack) for stack in eager.counts]
    within = [one for stack in eager.counts for one in way(facts, stack) if (one.file, one.func) == body[:2]]
    counts = Counter[Place]()
    for line, times in zip(lines, eager.counts.values(), strict=True):
        counts[line] += times
    looped = any(one.loop for one in within)
    hidden = 1 - eager.felt_ns / eager.ns if eager.ns else 0.0
    beside = f", and for {percent(hidden)} of that the device had other work" if hidden >= LITTLE else ""
    if eager.kept_ns >= LITTLE * eager.felt_ns:
        beside += f"; about {duration(eager.kept_ns / 1e9)} is work of the device that one program has, too"
        busy = {stack: facts.busy_s(facts.ran_at.get(stack, ())) for stack in outside}
        dearest = max(busy, key=lambda stack: busy[stack], default=0)
        if busy and busy[dearest] >= MOST * sum(busy.values()):
            beside += f", most of it at {short(facts.place(dearest))}"
    if eager.first.ns:
        beside += f". Compiling them as {plural(eager.first.programs, 'program')} took {duration(eager.first.ns / 1e9)}"
    loops = f"the body of the loop at line {within[0].loop}" if looped and within[0].loop else "the body of the loop"
    again = [facts.place(stack) for stack in facts.once(of_other_sizes)]
    # whether no function under jax.jit can have all of it
    inner = body.call.line and looped and within[0].loop  # its body, where the function has a loop of its own
    apart = any((one.file, one.func) == body[:2] and inner in (0, one.loop) for one in again)
    turns = facts.once(on_host)
    apart |= any((*body[:2], one.loop) in turns for one in within[:1])
    scanned = not apart and body.around not in turns
    if body.call.line and not apart:
        loops = f"what {body.func} computes"
        if looped:  # as one program all turns would stand one after the other in it
            loops = f"the body of {body.func}'s loop (or all of it, where the turns are few: they are unrolled)"
    elif not looped or apart:  # what calls the function repeats it
        own = list(dict.fromkeys(f"line {one.line}" for one in within))
        loops = f"what {name or 'the program'} computes at {enumerated(own, NAMED)}"
    reads = [facts.place(stack) for stack, _ in facts.run.reads]
    read = {one.at for one in reads}
    over = {(one.file, one.loop): one.at for one in reads if goes_over(facts, one)}  # head of a loop -> the read in it
    elements = sum(
        times for line, times in counts.items() if line.at in over or (line.at in read and takes_outside(facts, line))
    )
    most = counts.most_common(1)[0][0].at
    taken = not eager.turns and elements >= NEARLY_ALL * count  # to be read, which one change ends
    goes_on = NOWHERE if apart else facts.once(_tested).get(body.around, NOWHERE)
    decides = next((line for line in lines if line.at in read and _decides(line)), NOWHERE)
    advice = (
        f"Decide with jnp.where at {short(decides)}, where Python decides by a value that it reads, and put the whole "
        "loop into one function under jax.jit, as a jax.lax.scan: a jitted body alone still waits for that value in "
        f"each turn, {_UNJITTED}. Or read once, before the loop, what it decides by, and decide with NumPy, as in what "
        "is set-up or logging."
        if decides.line and decides.loop
        else f"Put {loops} into one function under jax.jit: one dispatch for all, and XLA fuses what follows each "
        f"other. {_SCANNED * scanned}What is set-up or logging, do with NumPy. {_DRAWN}"
    )
    if goes_on.line:
        advice = (
            f"Put the whole loop at line {goes_on.loop} into one function under jax.jit, as a jax.lax.while_loop, "
            f"which tests on the device what {short(goes_on)} reads (within a gradient: a fori_loop of a fixed number "
            "of turns, with a mask: jnp.where): one dispatch for all turns, which no longer wait for that value. A "
            f"jitted body alone still does, in each turn. What is set-up or logging, do with NumPy. {_DRAWN}"
        )
    library, modules = _MODULES
    if any(library in one.file for stack in facts.run.jit.callers for one in facts.place(stack).library):
        advice += modules
    if eager.kept_ns >= MOST * eager.felt_ns:
        advice += _THE_SAME
    if array := _copied(facts, outside):
        advice += _IN_PLACE.format(array=array)
    if eager.turns:
        stack, name = next(iter(eager.turns.items()))
        advice = (
            f"Call {name} once for all that the comprehension at {short(users(facts.place(stack)))} goes through: "
            "jax.vmap of it, under jax.jit, over what differs, stacked in arrays."
            + f" Of the rest: {advice[:1].lower()}{advice[1:]}"
            * bool(outside)
        )
    if eager.sent:
        at, what = facts.place(eager.sent[0]), facts.text(facts.run.largest_again(eager.sent[0]))
        advice = (
            f"Do once, before the loop, what is computed of the data that {short(at)} brings to the device again and "
            f"again ({what}). Of the rest: {advice[:1].lower()}{advice[1:]}"
        )
    return facts.finding(
        "op_by_op",
        body.call if body.call.line else next(one for one in [lines[0], *within] if (one.file, one.func) == body[:2]),
        count=sum(counted[stack].events for stack in outside) or counts.total(),
        counted=Matching(OutsideOperations, ("stack",), frozenset((stack,) for stack in outside))
        if outside
        else Matching(Execute, ("stack",), frozenset((stack,) for stack in eager.turns), count="calls"),
        cost_s=(eager.felt_ns + eager.first.ns) / 1e9,
        gain_s=eager.spare_ns / 1e9,
        cause=(
            f"{name or 'The program'}{called} {', and '.join(does)}: Python dispatches each, and each is a "
            "program of its own. The main thread was there for "
            f"{duration(eager.ns / 1e9)}{beside}."
        ),
        advice=fill(ELEMENTS, to_host=facts.words.to_host) if taken else advice,
        evidence=listed([f"{short(line)}: {plural(times, 'operation')}" for line, times in counts.most_common()]),
        discriminator=body.func if body.call.line else "",
        confidence="high" if hidden < MOST else "medium",
        trifle=False,
        ended_by=("decides", over.get(most, most))
        if taken
        else ("loop", goes_on.file, goes_on.func, goes_on.loop)
        if goes_on.line
        else None,
        also=[*within, *lines],
    )


def _copied(facts: Facts, outside: Iterable[int]) -> str:
    """The array that a line writes in part, where the device is busy with its copies for much of its time there."""
    ran = facts.run.executed_at
    busy = {stack: ran[stack].ns for stack in outside if stack in ran}
    most = max(busy, key=busy.__getitem__, default=0)
    written = written_in_part(facts.place(most).code) if busy else ""
    return written if busy and busy[most] >= PART * sum(busy.values()) > 0 else ""


def _tested(facts: Facts) -> dict[tuple[str, str, int], Place]:
    """The loops that go on by a value that they read, with the line that reads it: a solver's turns, which have no work
    of the host, and call nothing jitted, as an epoch's steps that are stopped early."""
    found = {}
    calls = [one for stack in facts.run.jit.callers for one in way(facts, stack)]
    for stack, op in facts.run.reads:
        line, takers = facts.place(stack), facts.names.takers(stack)
        loop = (line.file, line.func, line.loop)
        read = read_of(line.code, scalar=facts.text(op) in SCALARS, takers=takers, func=line.func)
        if not line.loop or line.library or read.use != Use.GOES_ON or loop in facts.once(on_host):
            continue
        within = ((one.file, one.func, one.loop) == loop or line.loop < one.line <= line.line for one in calls)
        if not any(one and (call.file, call.func) == loop[:2] for one, call in zip(within, calls, strict=True)):
            found[loop] = line
    return found


def _decides(line: Place) -> bool:
    return read_of(line.acting.code, scalar=True).use <= Use.DECIDES


KIND = Kind(find, blamed_for=("max_idle",))
