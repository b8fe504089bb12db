"""repeated_work: a jitted function computes in each call what depends on arguments that stay the same, or on none.

Of JAX's programs. XLA cannot know which arrays the next call has. Counted is what depends on arguments that were the
same arrays in each of the calls looked at, where it is felt. Cost: that share of the device's seconds in the function,
by an estimate of how long its operations take. A function all of whose arguments stay is told where it is not nearly
all that the device does: else the program may be there to measure it.
"""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.analysis.evidence.counted import Known
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.model import Finding, Moment
from xlaprof.analysis.places import short, users
from xlaprof.analysis.principles import FELT, NAMED, NEARLY_ALL
from xlaprof.analysis.sums import grouped
from xlaprof.events import RepeatedWork
from xlaprof.text.quantities import percent, plural
from xlaprof.text.strings import enumerated

_ALL = 980  # thousandths of a function's work: what is left is what little depends on a step's number


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each line that computes such a thing, however many functions have it."""
    again = (event for event in facts.run.jit.repeated.values() if not _may_measure(facts, event))
    for several in grouped(again, lambda event: facts.place(event.line or event.stack).at).values():
        if sum(_spent_s(facts, one) for one in several) >= FELT * facts.wall_s:
            yield _finding(facts, sorted(several, key=lambda one: -_spent_s(facts, one)))


def _within_s(facts: Facts, event: RepeatedWork) -> float:
    return facts.busy_s(facts.ran_at.get(event.stack, ()))


def _spent_s(facts: Facts, event: RepeatedWork) -> float:
    return _within_s(facts, event) * event.share / 1_000


def _may_measure(facts: Facts, event: RepeatedWork) -> bool:
    """Whether the device does little besides, and the call has the same arguments each time."""
    return event.share >= _ALL and _within_s(facts, event) >= NEARLY_ALL * facts.idle.busy_s


def _finding(facts: Facts, several: list[RepeatedWork]) -> Finding:
    event = several[0]
    line, spent = facts.place(event.line), sum(_spent_s(facts, one) for one in several)
    calls = [users(facts.place(one.stack)) for one in several]
    functions = enumerated(list(dict.fromkeys(facts.text(one.func) or "the function" for one in several)), NAMED)
    names = enumerated(list(dict.fromkeys(name for one in several for name in one.arguments)), NAMED)
    what = f"{event.operation}, whose result has the shape [{', '.join(map(str, event.shape))}]"
    looked = sum(one.calls for one in several)
    runs = sum(facts.run.executions(one.stack) for one in several)
    given = f"{names} alone, the same in each of {plural(looked, 'call')} looked at" if names else "constants alone"
    called = enumerated([short(one) for one in dict.fromkeys(calls)], NAMED)
    compute = "computes" if len(several) == 1 else "compute"
    return facts.finding(
        "repeated_work",
        line if line.line else calls[0],
        operation="jax.jit",
        count=runs,
        counted=Known((Moment(event.t, 0, runs, event.operation),)),
        cost_s=spent,
        gain_s=facts.won_back_s(spent),
        cause=(
            f"{functions} {compute} what depends on {given}, and so has the same result in each call. The dearest "
            f"of it is {what}. By its operations' shapes it is about {percent(event.share / 1_000)} of the work of "
            f"{facts.text(event.func) or 'it'}. Called at {called}."
        ),
        advice=(
            f"Compute it once, before the loop that calls {functions}, in a jitted function of its own, and give "
            f"{functions} the result as an argument."
            + f" Where {names} may change now and then, compute it again there."
            * bool(names)
        ),
        trifle=False,
        discriminator=functions,
        also=calls,
    )


KIND = Kind(find)
