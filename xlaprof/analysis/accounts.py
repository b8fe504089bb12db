"""Where the run's time went: every second in one account, and of each account what findings explain, what is normal
and why, and what nothing explains.

Compiling comes first: it counts whole, wherever it lies. The rest of the time lies before the first program, after the
last one, or between: there the device was busy or idle. Without a device compiling and the wait for data are recorded,
and of the rest what looks at the main thread found. Idle time is the findings' as far as a fix takes it out
(:class:`~xlaprof.analysis.whatif.replay.Cut`); a read's also what follows it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from heapq import nlargest
from typing import TypeVar

from xlaprof.analysis.compiled import ran
from xlaprof.analysis.compiled.beside import looked_up, run_uncompiled, runs_at
from xlaprof.analysis.evidence.activities import is_recorded_for, recording
from xlaprof.analysis.evidence.collecting import collections
from xlaprof.analysis.evidence.compilation import going_on
from xlaprof.analysis.evidence.counted import Known
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.guard_failures.sorting import hit_a_limit
from xlaprof.analysis.evidence.guard_failures.told import eager_ns
from xlaprof.analysis.evidence.idle_time import busy_lines, by_cause, label, seen_at, waited
from xlaprof.analysis.evidence.library_options import AROUND, around_calls, whose
from xlaprof.analysis.evidence.looping import several_barriers
from xlaprof.analysis.model import Account, CompiledFunctions, Finding, Place
from xlaprof.analysis.necessary import SPARED, necessary
from xlaprof.analysis.places import short, users
from xlaprof.analysis.principles import HABIT, LOOKED_NS, NAMED, WORTH_SAYING
from xlaprof.analysis.recompiles.eager import (
    compiled_again,
    compiled_first,
    idle_at,
    looks_beside,
    operations_of,
    spared_at,
)
from xlaprof.analysis.recompiles.jit_section import one_by_one
from xlaprof.analysis.recompiles.jitted.sorting import JAX
from xlaprof.analysis.timeline import host
from xlaprof.analysis.timeline.idle import Cause, Seen, Tally
from xlaprof.analysis.torch_tpu.again import TORCH_TPU
from xlaprof.analysis.whatif.replay import Cut
from xlaprof.text.quantities import duration, percent, plural, times
from xlaprof.text.strings import enumerated

_Key = TypeVar("_Key")
_Parts = defaultdict[str, float]  # what, or why -> ns

_DYNAMO = ("graph_break", "recompile", "unrolled_loop")  # kinds charged with Dynamo's time
_OTHERS = (JAX, TORCH_TPU)  # operations of findings of these kinds that are not
_WORDS = {
    "compile": "compiling",
    "torch.compile": "compiling by torch.compile",
    "jax": "compiling by JAX",
    "data": "waiting for data",
    "import": "importing modules",
    "run": "running",
    "idle": "device idle",
    "busy": "device busy",
    "before": "before the first program",
    "after": "after the last program",
}
_IMPORTS, _SET_UP, _FIRST = "importing modules", "set-up", "set-up, and recording the first operations"
_FIRSTS = "first compilations"
_NOTHING_YET = "set-up: the device had been given nothing yet"
_RECORDING = "the host records operations and hands them over"
_HANDED = f"{_RECORDING}: several steps in one call, by jax.lax.scan over their batches, share that"
_UNSEEN = "nothing was recorded of what the host did"
_OWN = "the program's own Python"
#: causes of idle time that are part of every step, and the machine's
_USUAL = {
    host.TRACING: _RECORDING,
    host.DISPATCH: _RECORDING,
    host.UPLOAD: "copying to the device",
    host.IMPORT: _IMPORTS,
    host.CPU: "other programs had the processors",
}


class _Bill:
    """An account while it is written. Nanoseconds."""

    def __init__(self, what: str, normal: float = 0.0, reason: str = "", remark: str = "") -> None:
        self.what = what
        self.by: dict[str, str] = {}  # findings that explain some of it: id -> kind
        self.explained = 0.0
        self.normal = _Parts(float, {reason: normal} if reason else {})
        self.unknown = _Parts(float)
        self.avoidable = set[str]()  # the reasons among the normal ones that say what to do about it
        self.remark = remark

    @property
    def total(self) -> float:
        return self.explained + sum(self.normal.values()) + sum(self.unknown.values())

    def explain(self, finding: Finding, ns: float, aside: bool = False) -> None:
        """``aside``: the finding was set aside, for nothing but another library changes it, or for it costs little."""
        if ns > 0 and aside:
            small = "compiled again, and it is small" if finding.kind != "transfer" else "reads that the host needs"
            why = f"{whose(finding.place.acting)} own" if finding.place.library else small
            self.normal[f"{why}, at {short(finding.place)}"] += ns
        elif ns > 0:
            self.explained += ns
            self.by[finding.id] = finding.kind

    def limit(self, most: float) -> None:
        """Shorten all of its parts alike, so that it is no longer than ``most``."""
        share = max(0.0, most) / self.total if self.total > max(0.0, most) else 1.0
        if share < 1:
            self.explained *= share
            for parts in (self.normal, self.unknown):
                for name in parts:
                    parts[name] *= share

    def account(self, whole: float) -> Account:
        kinds = ", ".join(dict.fromkeys(self.by.values()))
        normal = [(ns, reason) for reason, ns in self.normal.items() if ns > 0]
        unknown = sum(self.unknown.values())
        parts = [
            (self.explained, f"explained by findings ({kinds})"),
            *sorted(
                ((ns, f"{'avoidable' if why in self.avoidable else 'normal'}: {why}") for ns, why in normal),
                reverse=True,
            ),
            (unknown, f"unexplained: {_listed(self.unknown)}"),
        ]
        said = [(ns, text) for ns, text in parts if ns >= WORTH_SAYING * whole] or [max(parts)]
        share = min(1.0, self.total / whole)
        words = "; ".join(f"{_amount(ns, whole)} {text}" for ns, text in said)
        whole_of_it = len(said) == 1 and said[0][0] >= (1 - WORTH_SAYING) * self.total
        words = f", {said[0][1]}" if whole_of_it else f": {words}"
        return Account(
            what=self.what,
            total_s=self.total / 1e9,
            share=share,
            explained_s=self.explained / 1e9,
            findings=tuple(self.by),
            normal_s=sum(ns for ns, _ in normal) / 1e9,
            reason="; ".join(reason for _, reason in normal),
            unexplained_s=unknown / 1e9,
            text=f"{_amount(self.total, whole)} {_WORDS[self.what]}{words}.{self.remark}",
            remark=self.remark.strip(),
        )


def _amount(ns: float, whole: float) -> str:
    return f"{duration(ns / 1e9)} ({percent(min(1.0, ns / whole))})"


def accounts(
    facts: Facts, findings: tuple[Finding, ...], functions: CompiledFunctions, jitted: CompiledFunctions
) -> tuple[Account, ...]:
    """The accounts of a settled run, the largest first; ``findings``: all of the run."""
    run = facts.run
    spans, devices = run.spans(), run.devices()
    whole = sum(span.ns for span in spans)
    if whole <= 0:
        return ()
    # where no replay of the runtime's is behind them
    uncut = (one for one in findings if one.kind in _DYNAMO and not _cuts(facts, one))
    of_dynamo = (one for one in uncut if one.operation not in _OTHERS)
    of_jax = (one for one in findings if one.operation == JAX or compiled_first(facts, one).ns)
    bills = [
        _section("torch.compile", functions, of_dynamo, "another phase of the program, or another object"),
        _section("jax", jitted, of_jax, "another use of the function"),
        _compiled(facts, findings, bool(functions.count)),
    ]
    if (apart := facts.once(one_by_one)) is not None:
        bills[1].avoidable.add(apart.text)
        bills[1].normal[apart.text] = _take(bills[1].normal, [_FIRSTS], apart.spare_ns)
    bills[0].limit(functions.total_s * 1e9)  # a finding's cost may exceed it
    compiling = 0.0
    for bill in bills:
        bill.limit(whole - compiling)
        compiling += bill.total
    if devices:
        window = sum(device.busy + device.idle + device.digest_idle for device in devices)
        each = min(sum(span.devices > 0 for span in spans) / len(devices), whole / max(1, window))  # their mean
        idle = {cause: ns * each for cause, ns in by_cause(run).items()}
        before = float(min(sum(max(0, span.before) for span in spans if span.devices), whole - window * each))
        busy = sum(device.busy for device in devices) * each
        left = compiling - _take(idle, [host.COMPILE], compiling)
        others = {"before": max(0.0, before), "busy": busy, "after": max(0.0, whole - window * each - before)}
        for part in others:
            left -= _take(others, [part], left)
        _take(idle, list(idle), left)
        bills += [
            _idle(facts, findings, idle),
            _busy(facts, findings, others["busy"]),
            _before(facts, others["before"]),
            _after(facts, others["after"]),
        ]
    else:
        waits = {stack: one.total for (stack, cause), one in run.pauses.items() if cause == host.DATA}
        line = short(facts.place(max(waits, key=waits.__getitem__, default=0)))
        why = f"the batches of {line}. To load ahead: {facts.words.load_ahead}"
        known = [finding for finding in findings if finding.kind == "idle_gap" and not looked_up(finding)]
        data = _Bill("data", float(sum(waits.values())) - sum(one.cost_s for one in known) * 1e9, why)
        for finding in known:
            data.explain(finding, finding.cost_s * 1e9)
        data.limit(whole - compiling)
        bills += [data, *_unrecorded(facts, findings, whole - compiling - data.total)]
    found = (bill.account(whole) for bill in bills if bill.total >= 1)
    return tuple(sorted(found, key=lambda account: -account.total_s))


# -- what only looks at the main thread tell


def _before(facts: Facts, ns: float) -> _Bill:
    """The time before the first program."""
    bill = _Bill("before")
    imports, lines = seen_at(facts.names, facts.run.looks_before)
    for reason, parts in ((_IMPORTS, imports), (_SET_UP, lines)):
        if parts:
            bill.normal[f"{reason}, at {_listed(parts)}"] = sum(parts.values())
    bill.limit(ns)
    bill.normal[_FIRST if bill.total else _NOTHING_YET] += max(0.0, ns - bill.total)
    return bill


def _after(facts: Facts, ns: float) -> _Bill:
    """The time behind the last program: at exit libraries end their processes and threads, which may take seconds."""
    run, stood = facts.run, Counter[tuple[int, str]]()
    if not run.merged_spans:
        for one in run.standing.all():
            stood[one.stack, ""] += max(0, one.start + one.dur - max(one.start, round(run.last - ns)))
    _, lines = seen_at(facts.names, +stood)
    where = f", at {_listed(lines)}" if lines else ""
    return _Bill("after", ns, f"the device was given nothing more{where}")


def _unrecorded(facts: Facts, findings: tuple[Finding, ...], ns: float) -> list[_Bill]:
    """Without a device: the imports, and the lines that ran, in the ``ns`` of which nothing else is known."""
    limits = [finding for finding in findings if hit_a_limit(finding)]
    limited = [key for key, one in facts.run.torch_compile.functions.items() if one.limit is not None]
    eager = eager_ns(facts, *limited) if limits else {}
    calls = [one for one in findings if looked_up(one) or collections(one) or one.kind == "uncompiled"]
    told = {key for finding in calls for key in looked_up(finding)}
    if any(finding.kind == "uncompiled" for finding in calls):
        told |= facts.once(run_uncompiled)
    collecting = {finding.place.at for finding in calls if collections(finding)}
    compiled, elsewhere, graphs = runs_at(facts), dict[tuple[int, str], int](), 0
    for key, took in facts.run.looks_before.items():
        if key[0] in eager or key in told:
            continue
        place = facts.place(key[0])
        if {place.at, place.acting.at} & compiled and key[1] != "import":  # as @torch.compile imports Dynamo there
            graphs += took
        elif place.at not in collecting:
            elsewhere[key] = took
    imports, lines = seen_at(facts.names, elsewhere)
    of_calls = sum(finding.cost_s for finding in calls) * 1e9
    seen = sum(imports.values()) + sum(lines.values()) + sum(eager.values()) + of_calls + graphs
    if not seen:  # an early recording has no looks
        return []
    share = min(1.0, ns / seen)
    found = [
        _Bill("import", sum(imports.values()) * share, f"once in a process, at {_listed(imports)}"),
        _Bill("run", sum(lines.values()) * share, f"the program's own work, at {_listed(lines)}"),
    ]
    for limit in limits[:1]:
        found[1].explain(limit, sum(eager.values()) * share)
    for finding in calls:
        found[1].explain(finding, finding.cost_s * 1e9 * share)
    # a graph of inductor's keeps the interpreter's lock: mostly no look falls into it
    unseen = max(0.0, ns - sum(bill.total for bill in found))
    timed = (ran.stat(facts).share or 0.0) * (ns - found[0].total)
    found[1].normal["what is compiled ran"] += min(unseen, max(timed, graphs * share))
    found[1].unknown[_UNSEEN] = max(0.0, ns - sum(bill.total for bill in found))
    return found


# -- compiling


def _section(what: str, functions: CompiledFunctions, findings: Iterable[Finding], necessary: str) -> _Bill:
    """As the section on torch.compile, or on JAX, has it; ``findings``: those that explain some of it."""
    bill = _Bill(what)
    charged = {charge.what: charge.seconds * 1e9 for charge in functions.charges}
    bill.explained = sum(charged.get(what, 0.0) for what in ("break", "loop", "recompile"))
    if bill.explained:
        bill.by = {one.id: one.kind for one in findings}
    whys = {"first": _FIRSTS, "necessary": necessary, "chosen": "a graph for each size, as dynamic=False asks"}
    for what, why in (whys | {"failed": "compilations that failed", "open": "one that had not ended yet"}).items():
        bill.normal[why] = charged.get(what, 0.0)
    bill.unknown["compiled again, and the recording does not say why"] = charged.get("unexplained", 0.0)
    return bill


def _compiled(facts: Facts, findings: tuple[Finding, ...], but_dynamo: bool) -> _Bill:
    """Compiles of the runtime's graphs; ``but_dynamo``: without those that torch.compile captured."""
    run, bill = facts.run, _Bill("compile")
    known = (*findings, *facts.aside)
    claims = _claims(facts, known)
    lines: dict[str, _Parts] = {}  # why graphs were compiled -> at which lines
    graphs: Counter[str] = Counter()
    spared: Counter[bool | None] = Counter()  # are they kept? -> ns that a cache saves; None: nothing is known of that
    for record in run.compiles:
        if record.trigger == "ahead" or (but_dynamo and record.trigger == "dynamo"):
            continue  # other threads made it: where the program waits for it, a scope says so
        by = claims.get((record.t, record.dur), {})
        if not record.cached:
            spared[record.kept or (False if record.unkept else None)] += record.dur if record.kept else record.backend
        claimed = sum(by.values())
        share = min(1.0, claimed)
        for finding, part in by.items():
            bill.explain(known[finding], record.dur * share * part / claimed, aside=finding >= len(findings))
        rest, place = record.dur * (1 - share), facts.place(record.stack)
        line = short(place) if place.line else "an unknown line"
        if why := necessary(facts, record):
            lines.setdefault(why, _Parts(float))[line] += rest
            graphs[why] += rest > 0
        else:
            bill.unknown[f"compiled again at {line}"] += rest
    for why, at in lines.items():
        reason = f"{plural(graphs[why], 'graph')} {why} at {_listed(at)}"
        bill.normal[reason] = sum(at.values())
        bill.avoidable |= {reason} if why.startswith(SPARED) else set()
    if (further := run.compile_bill.total - sum(record.dur for record in run.compiles)) > 0:
        bill.unknown["compiles beyond those kept one by one"] += further
    lasts, where = going_on(run, "runtime")
    bill.normal[where] += lasts
    kept, most = max(((ns, kept) for kept, ns in spared.items()), key=lambda one: one[0], default=(0, False))
    if kept * 2 >= bill.total > 0 and most is not False:
        saves = "initialize_cache() would save" if most is None else "The programs are kept, which saves"
        bill.remark = f" {saves} a second run {duration(kept / 1e9)} of it."
    return bill


def _claims(facts: Facts, findings: tuple[Finding, ...]) -> dict[tuple[int, int], dict[int, float]]:
    """(begin, ns) of a compile -> the positions of the findings that explain a share of it, and the shares.

    A finding explains no more than it costs: of a graph that has several causes each bears a part.
    """
    found: dict[tuple[int, int], dict[int, float]] = {}
    for position, finding in enumerate(findings):
        own = {}
        if isinstance(finding.counted, Known):
            own = {(moment.t, moment.dur): 1.0 for moment in finding.counted.moments}
        for cut in _cuts(facts, finding):
            own |= {(moment, ns): 1 - kept for moment, ns, kept in cut.compiles}
        claimed = sum(ns * share for (_, ns), share in own.items())
        part = min(1.0, finding.cost_s * 1e9 / claimed) if claimed > 0 else 0.0
        for key, share in own.items():
            if share * part > 0:
                found.setdefault(key, {})[position] = share * part
    return found


def _cuts(facts: Facts, finding: Finding) -> list[Cut]:
    """What a fix of a finding takes out of the run. Of findings of one id, which are numbered, each has its own."""
    id, _, number = finding.id.partition("-")
    claims = facts.claims.get(id, [])
    return claims[int(number) - 1 : int(number)] if number else claims


# -- busy and idle time


def _busy(facts: Facts, findings: tuple[Finding, ...], ns: float) -> _Bill:
    """A program runs while it calls Python; arrays that are written part by part outside of jit are copied; operations
    outside of jit are programs that take longer than they do as one."""
    bill, left = _Bill("busy", remark=waited(facts.run, ns)), {"busy": ns}
    ran, spared = sum(there.ns for there in facts.run.executed_at.values()), Counter[int]()
    for finding in findings:
        copies = finding.kind == "donation" and not _cuts(facts, finding)  # on the device, and not within the call
        if copies or finding.kind in ("host_callback", "repeated_work"):
            bill.explain(finding, _take(left, left, finding.cost_s * 1e9))
        spared.update(at := spared_at(facts, finding))
        bill.explain(finding, _take(left, left, ns * sum(at.values()) / max(1, ran)))
    lines = _Parts(float, busy_lines(facts.run, left["busy"], spared))
    bill.normal[f"the program's own work{', run at ' * bool(lines)}{_listed(lines)}"] = left["busy"]
    return bill


def _idle(facts: Facts, findings: tuple[Finding, ...], idle: dict[Cause, float]) -> _Bill:
    """``idle``: ns by cause, without compiling; it is emptied."""
    bill = _Bill("idle")
    known = [(finding, False) for finding in findings] + [(finding, True) for finding in facts.aside]
    cuts = [(finding, aside, cut) for finding, aside in known for cut in _cuts(facts, finding)]
    for finding, aside, cut in cuts:
        bill.explain(finding, _take(idle, cut.causes, sum(idle.values())), aside)
    for finding, aside, cut in cuts:
        causes = {cause for cause, _ in cut.places} | ({host.DISPATCH} if cut.barriers else set())
        cost = finding.cost_s * 1e9 - sum(ns * (1 - kept) for _, ns, kept in cut.compiles)
        taken = _take(idle, causes, cost)
        if host.TRANSFER in causes and host.FALLBACK not in causes:  # a read's cost includes the idle time behind it
            taken += _take(idle, list(idle), cost - taken)
        bill.explain(finding, taken, aside)
    for finding in findings:
        if finding.kind == "upload" and not _cuts(facts, finding):
            bill.explain(finding, _take(idle, [host.UPLOAD], finding.cost_s * 1e9))
        if looked_up(finding):
            bill.explain(finding, _take(idle, [host.OTHER, host.DATA], finding.cost_s * 1e9))
        elif own := operations_of(finding):
            again = sum(compiled_again(facts, stack) for stack in own) + compiled_first(facts, finding).ns
            there = max(finding.cost_s * 1e9 - again, idle_at(facts, finding.place, idle))
            bill.explain(finding, _take(idle, list(idle), there))
    lines = recording(facts.run)
    seen_in: dict[Cause, Cause] = dict(facts.run.window.idle.seen_in())
    for cause, ns in idle.items():
        seen = seen_in.get(cause, cause)
        name = _unseen(facts) if seen == host.OTHER else label(seen, facts.names)
        for reason, part in _normal(facts, cause, seen, ns, name, lines):
            part = min(part, ns)
            bill.normal[reason] += part
            bill.avoidable |= {reason} if AROUND in reason else set()
            ns -= part
        bill.unknown[name] += ns
    if not any(one.kind == "excess_barriers" for one in findings):
        bill.remark = several_barriers(facts)
    return bill


def _unseen(facts: Facts) -> str:
    """Where looks at the main thread found it."""
    _, lines = seen_at(facts.names, facts.run.looks)
    most = nlargest(NAMED, lines, key=lines.__getitem__)
    return f"{_UNSEEN} (the main thread was seen at {', '.join(most)})" if most else _UNSEEN


def _looked(facts: Facts, ns: float) -> Iterator[tuple[str, float]]:
    """Why some of the ``ns`` in which nothing was recorded is normal, by looks at the main thread; and how much.

    At a line that calls programs, or runs operations, the host hands them over; compiling there counts as that.
    """
    ran = sorted(facts.run.executed_at, key=facts.run.executions)
    calls = {place.at: place for place in map(facts.place, ran)}  # the most frequent last
    handed, own = dict[str, _Parts](), _Parts(float)
    for stack, took in looks_beside(facts, facts.run.jit.compiled_at)[1].items():
        place = facts.place(stack)
        if place.at in calls:
            handed.setdefault(around_calls(calls[place.at]), _Parts(float))[short(users(place))] += took
        elif place.line:
            own[short(users(place))] += took
    seen = sum(sum(at.values()) for at in (*handed.values(), own))
    if seen < LOOKED_NS or not facts.run.jit.functions:
        return
    for why, at in (*handed.items(), (_OWN, own)):
        parts = _Parts(float, {line: took * min(1.0, ns / seen) for line, took in at.items()})
        if parts:
            yield f"{why}, at {_listed(parts)}" if why else _HANDED, sum(parts.values())


def _normal(
    facts: Facts, cause: Cause, seen: Cause, ns: float, name: str, known: frozenset[Place]
) -> Iterator[tuple[str, float]]:
    """Why some of the ``ns`` of idle time of a cause is normal, and how much.

    ``seen``: as what samples showed the cause; ``known``: lines that record operations.
    """
    tally = facts.run.window.idle.causes.get(cause, Tally())
    kind = seen.cause if isinstance(seen, Seen) else seen
    if is_recorded_for(facts.run, seen, known):
        kind = host.TRACING
    if isinstance(kind, int) and kind in _USUAL:
        yield _USUAL[kind], ns
        return
    # in a scope, and where a sample shows a line that records, the host recorded
    if isinstance(kind, int) and (kind >= host.SCOPE or kind == host.GLIMPSE):
        share = sum(ns for stack, ns in tally.lines.items() if facts.place(stack) in known)
        yield _RECORDING, ns * max(tally.recorded, share) / max(1, tally.total)
    if kind == host.OTHER:
        yield from _looked(facts, ns)
        return
    if tally.gaps < HABIT:
        yield f"{name}, {times(tally.gaps)}", tally.total
    elif tally.most * 2 > tally.total:
        yield f"{name}, once", tally.most


def _take(pool: dict[_Key, float], keys: Iterable[_Key], most: float) -> float:
    """Take ``most`` ns at most from what is at ``keys``, from each the same share; returns what was taken."""
    there = [key for key in keys if pool.get(key, 0.0) > 0]
    whole = sum(pool[key] for key in there)
    taken = min(whole, max(0.0, most))
    for key in there:
        pool[key] = max(0.0, pool[key] - taken * (pool[key] / whole))
    return taken


def _listed(parts: _Parts) -> str:
    """What took most: "train.py:120 (12.1 s), train.py:88 (5.2 s) and 3 more"; one alone without its time."""
    most = sorted(((name, ns) for name, ns in parts.items() if ns > 0), key=lambda part: -part[1])
    if len(most) <= 1:
        return most[0][0] if most else ""
    least = WORTH_SAYING * sum(parts.values())
    large = [part for part in most[:NAMED] if part[1] >= least] or most[:1]
    named = [f"{name} ({duration(ns / 1e9)})" for name, ns in large]
    return enumerated([*named, *(name for name, _ in most[len(named) :])], len(named))
