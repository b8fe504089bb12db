"""The section on JAX of a report: what was compiled, what it needs, and why each second of compiling was spent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple

from xlaprof.analysis.evidence.compilation import going_on
from xlaprof.analysis.evidence.counted import Known
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.fold.fold import Fold
from xlaprof.analysis.fold.jit import JitTally, Needs, memory
from xlaprof.analysis.model import Charge, CompiledFunctions, ExchangeStat, Finding, FunctionStat, JitProgramStat, Place
from xlaprof.analysis.places import short
from xlaprof.analysis.principles import DEAR, LISTED, MANY, NAMED, NOTICED, SHOWN
from xlaprof.analysis.whatif.one_program import compiling
from xlaprof.text.quantities import amount, duration, percent, plural, size_text
from xlaprof.text.strings import enumerated, package_path

from .eager import bodies, calls_jitted, compiled_first, way
from .jitted.sorting import JAX, compiled_outside, sort_out

_APART_S = 500e-6  # runs that are shorter on average were told several at a time
_WORTH = 1 << 20  # bytes that are worth a line
_COMPILE_NOTHING = ("donation", "repeated_work")  # kinds of findings on jitted functions


class OneByOne(NamedTuple):
    """Operations outside of jitted functions that were compiled once, each as a program of its own, as of a set-up."""

    spare_ns: int  # that one function under jax.jit would not take
    text: str  # how many, of which calls, and the way out


#: what makes a model of each library's under jit: a part of the library's path -> how
_MAKES = (
    ("/flax/nnx/", "nnx.jit around the function that makes the model"),
    ("/flax/", "jax.jit(model.init)"),
    ("/equinox/", "eqx.filter_jit around the function that makes the model"),
)


def jitted_functions(facts: Facts, findings: tuple[Finding, ...]) -> CompiledFunctions:
    """The section on JAX of a settled run; ``findings``: all of the run."""
    functions = _by_line(facts)
    longest = sorted(functions.items(), key=lambda item: -item[1].dur)[:LISTED]
    lasts, _ = going_on(facts.run, "jit")
    total = sum(one.dur for one in functions.values()) + lasts
    return CompiledFunctions(
        count=len(functions),
        graphs=sum(one.programs for one in functions.values()),
        total_s=total / 1e9,
        functions=tuple(_stat(facts, key[0], tally) for key, tally in longest),
        charges=tuple(_charges(facts, findings, total / 1e9)),
    )


def _by_line(facts: Facts) -> dict[tuple[int, int], JitTally]:
    """By a stack of the definition, or of the line of operations outside, and name: one for each line, however many
    ways lead to it."""
    ways: dict[tuple[Place, int], list[int]] = {}
    for stack, name in facts.run.jit.functions:
        ways.setdefault((facts.place(stack).acting, name), []).append(stack)
    found = {}
    for (_, name), stacks in ways.items():
        found[stacks[0], name] = tally = JitTally(name)
        for stack in stacks:
            tally.merge(facts.run.jit.functions[stack, name])
    return found


def _stat(facts: Facts, place: int, tally: JitTally) -> FunctionStat:
    phases = {"tracing": tally.trace, "lowering": tally.lower, "XLA": tally.backend}
    spent = ", ".join(f"{name} {percent(ns / tally.dur)}" for name, ns in phases.items() if tally.dur and ns)
    needs = _programs(facts.run, tally.name, tally.callers)
    return FunctionStat(
        name=facts.text(tally.name) or "operations outside of jit",
        place=facts.place(place),
        backend=spent,
        graphs=tally.programs,
        again=tally.again,
        breaks=0,
        compile_s=tally.dur / 1e9,
        programs=needs,
        needs=tuple(line for one in needs[:1] for line in _in_words(one)),
    )


def _charges(facts: Facts, findings: tuple[Finding, ...], total: float) -> Iterator[Charge]:
    functions = facts.run.jit.functions.values()
    outside = sum(one.dur for one in functions if not one.name) / 1e9
    compiled = (one for one in findings if one.operation == JAX and one.kind not in _COMPILE_NOTHING)
    told = [compiled_first(facts, one) for one in findings]
    again = min(total, sum(one.cost_s for one in compiled) + sum(one.ns for one in told) / 1e9)
    known = facts.once(sort_out)
    # what has its own finding is no other use, however many programs hold the same loop
    counted = (one.counted.moments for one in findings if isinstance(one.counted, Known))
    told_of = {(moment.t, moment.dur) for moments in counted for moment in moments}
    others = [one.event for one in known.necessary if (one.event.t, one.event.dur) not in told_of]
    necessary = min(total - again, sum(event.dur for event in others) / 1e9)
    cached = sum(one.cached for one in functions) / 1e9
    lasts, where = going_on(facts.run, "jit")
    first = max(0.0, total - again - necessary - lasts / 1e9)
    graphs = sum(one.programs for one in functions) - len(others) - sum(len(one.records) for one in known.found)
    graphs -= sum(one.programs for one in told)
    text = f"for the first compilation of {plural(graphs, 'program')}: normal."
    if (apart := facts.once(one_by_one)) is not None:  # of these are some that another line had needed, too
        text = f"for first compilations. {apart.text}."
    if apart is None and outside > first / 2 and outside > 0:
        lines = {stack: one.dur for (stack, _), one in facts.run.jit.functions.items() if not one.name}
        place = short(facts.place(max(lines, key=lines.__getitem__)))
        text += f" Operations outside of jitted functions, most of them at {place}, are programs of their own."
    if cached:
        text += f" Of it {duration(cached)} went into programs that came from the persistent cache."
    text += _unkept(facts, first)
    charged = {"first": first, "recompile": again, "necessary": necessary, "open": lasts / 1e9}
    why = {
        "first": text,
        "open": f"for {where}.",
        "recompile": "for what findings tell of.",
        "necessary": "for another use of a function (another line, a mode, sizes that were chosen): normal.",
    }
    yield from (Charge(what, seconds, why[what]) for what, seconds in charged.items() if seconds > 0)


def _unkept(facts: Facts, most: float) -> str:
    """What the persistent cache would save the next run, and how; at ``most`` so many seconds."""
    unkept: Counter[str] = Counter()
    for one in facts.run.jit.functions.values():
        unkept.update(one.unkept)
    off, fast, other = (min(most, unkept[why] / 1e9) for why in ("off", "fast", "other"))
    said = ""
    if off:
        said += (
            f" XLA's {duration(off)} of it can come from a cache on disk in the next run: "
            "jax.config.update('jax_compilation_cache_dir', ...)."
        )
    if fast >= NOTICED * facts.total_s:
        said += (
            f" The persistent cache leaves out what compiles fast, {duration(fast)} in all: "
            "jax_persistent_cache_min_compile_time_secs=0 has it kept, too."
        )
    if other:
        said += (
            f" JAX did not keep {duration(other)} of programs with host callbacks (jax.debug.print), "
            "of a process that is not the first, or below its least size."
        )
    return said


def one_by_one(facts: Facts) -> OneByOne | None:
    """Those at lines of no finding, where they are dear and one function would spare a part of the run that is seen.

    What one program would take to compile is told by what the run's own took.
    """
    told = compiled_outside(facts).union(*(eager.lines for eager in facts.once(bodies).values()))
    callers = map(facts.place, facts.run.jit.callers)
    parts = {place.at for place in callers if place.library}  # what a library jits in part is no function to jit whole
    lines: dict[tuple[str, int], dict[int, JitTally]] = {}  # what one program can be -> by stack
    jitted, takes = calls_jitted(facts), compiling(facts.run.jit)
    for (stack, name), one in facts.run.jit.functions.items():
        place = facts.place(stack)
        line = _called_by(facts, stack, jitted)
        if not name and place.line and place.at not in told and line.at not in parts:
            lines.setdefault(line.at, {})[stack] = one
    spares, took, count, ways = Counter[tuple[str, int]](), Counter[tuple[str, int]](), 0, Counter[str]()
    for at, some in lines.items():
        dur, programs = sum(one.dur for one in some.values()), sum(one.programs for one in some.values())
        spare = dur - takes.one(sum(_ops(facts, stack, one) for stack, one in some.items()), dur, programs)
        if spare > 0:
            spares[at], took[at], count = int(spare), dur, count + programs
            for stack, one in some.items():
                library = facts.place(stack).library
                ways[next((how for part, how in _MAKES if any(part in line.file for line in library)), "")] += one.dur
    whole = facts.wall_s * 1e9
    if count < MANY or took.total() < DEAR * whole or spares.total() < NOTICED * whole:
        return None
    named = [f"{package_path(file)}:{line} ({duration(ns / 1e9)})" for (file, line), ns in took.most_common()]
    hows = [how for how, ns in ways.items() if how and ns >= DEAR * took.total()]
    return OneByOne(
        spares.total(),
        f"{plural(count, 'operation')} outside of jitted functions were compiled one by one, "
        f"{duration(took.total() / 1e9)}, at {enumerated(named, NAMED)}: put what such a line does into one "
        f"function under jax.jit{f' ({enumerated(hows, NAMED)})' if hows else ''}, and one program in place of many "
        "spares some "
        f"{duration(spares.total() / 1e9)} of that (random numbers compile as long there)",
    )


def _ops(facts: Facts, stack: int, tally: JitTally) -> float:
    """The operations of a line in a program of all that it does. Turns of a loop that are alike are one program; what
    comes in several sizes, or by a library's loop, stands in it as often as it was called."""
    ran = facts.run.jit.outside.get(stack)
    if ran is None or (tally.programs <= len(ran.functions) and any(line.loop for line in way(facts, stack))):
        return tally.ops
    return tally.ops / tally.programs * max(ran.count, tally.programs)


def _called_by(facts: Facts, stack: int, jitted: frozenset[tuple[str, str]]) -> Place:
    """The line all of whose operations can be one program: the innermost of a function that also calls jitted ones, for
    what it calls does not. Where none does, the innermost line."""
    lines = way(facts, stack)
    return next((line for line in lines if (line.file, line.func) in jitted), facts.place(stack))


# -- what the programs need


def _programs(run: Fold, name: int, callers: Collection[int]) -> tuple[JitProgramStat, ...]:
    """Those of the function with this name, called at these lines (Stack ids)."""
    needs = [one for (func, stack), one in run.jit.needs.items() if func == name and stack in callers]
    needs.sort(key=lambda one: -memory(one.largest))
    return tuple(_program(run, one) for one in needs[:SHOWN])


def _program(run: Fold, needs: Needs) -> JitProgramStat:
    one = needs.largest
    return JitProgramStat(
        place=run.names.place(one.stack),
        programs=needs.programs,
        arguments=one.arguments,
        results=one.results,
        temporary=one.temporary,
        donated=one.donated,
        flops=one.flops,
        accessed=one.accessed,
        devices=one.devices,
        runs=run.program_runs.get(one.program, 0),
        busy_s=run.program_busy.get(one.program, 0) / 1e9,
        exchanges=tuple(
            ExchangeStat(
                kind=each.kind,
                shape=each.shape,
                bytes=each.bytes,
                count=each.count,
                place=run.names.place(each.stack),
                arguments=tuple(each.arguments),
            )
            for each in one.collectives
        ),
    )


def _in_words(one: JitProgramStat) -> Iterator[str]:
    """What is worth a line of it."""
    held = one.needs_bytes
    if held >= _WORTH:
        where = f" on each of {one.devices:,} devices" if one.devices > 1 else ""
        donated = f" ({size_text(one.donated)} of them in the place of arguments)" if one.donated else ""
        yield (
            f"{size_text(held)} while it runs{where}: {size_text(one.arguments)} of arguments, "
            f"{size_text(one.results)} of results{donated}, {size_text(one.temporary)} between them"
        )
    mean = one.busy_s / one.runs if one.runs else 0.0
    if mean >= _APART_S and one.programs == 1 and one.flops:
        speed = amount(one.flops * one.devices / mean)
        yield (
            f"{amount(one.flops * one.devices)}FLOP, {size_text(one.accessed * one.devices)} read and written in "
            f"{duration(mean)}: {speed}FLOP/s, {size_text(one.accessed * one.devices / mean)}/s"
        )
    whole = sum(each.bytes for each in one.exchanges)
    told = [each for each in one.exchanges if each.bytes >= NOTICED * whole][:SHOWN]
    for each in told:
        several = f"{each.count:,} times " if each.count > 1 else ""
        line = f" for {short(each.place)}" if each.place.line else ""
        forced = f", as {_listed(each.arguments)}" if each.arguments else ""
        yield f"{several}{each.kind} of {each.shape}, {size_text(each.bytes)}{line}{forced}"
    if len(one.exchanges) > len(told):
        yield f"and {plural(len(one.exchanges) - len(told), 'smaller exchange')} between devices"


def _listed(arguments: tuple[str, ...]) -> str:
    return " and ".join(f"{one.replace(': ', ' is divided along ', 1)}" for one in arguments)
