"""donation: a jitted function makes results beside arguments of the same shapes that nothing needs any more.

Of JAX's programs. XLA could write the results in the place of these arguments, if they were donated. Counted are large
arrays that were gone when the function was called next, in each of the calls looked at, and smaller ones where the
copy is felt. Cost: memory, as much as the arguments take; seconds where the host is seen in the call while the device
idles, for XLA's client for CPUs runs a program that is little else than that copy within the call; else the device's
seconds, by the share that the copy has of all that the program reads and writes. Of these the host can win back what it
waited for results, or the share in which the device is busy: a host that is ahead of it is kept in its calls.

Outside of jitted functions ``x = x.at[i].set(value)`` copies all of ``x``, however little is written. Counted are such
lines where the device is busy with them for a part of the run that is felt; its time there is the cost.
"""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.analysis.evidence.activities import Activity, copying
from xlaprof.analysis.evidence.counted import Known, Matching
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.model import Finding, Moment
from xlaprof.analysis.places import users
from xlaprof.analysis.principles import FELT, MANY, NAMED
from xlaprof.analysis.statements import written_in_part
from xlaprof.analysis.whatif import replay
from xlaprof.events import OutsideOperations, Undonated
from xlaprof.text.quantities import duration, percent, plural, size_text

#: how each wrapper of ``jax.jit`` is told; filled with the arguments' names
_ADVICE = {
    "": "jax.jit({function}, donate_argnames={names})",
    "flax": "nnx.jit({function}, donate_argnames={names})",
    "equinox": 'equinox.filter_jit({function}, donate="all")',
}


def find(facts: Facts) -> Iterator[Finding]:
    """At most one finding for each line that calls such a function: by the program that was looked at last."""
    yield from (_finding(facts, *copied) for copied in facts.once(copying))
    for stack in (stack for stack, one in facts.run.jit.outside.items() if one.count >= MANY):
        busy = facts.busy_s(facts.ran_at.get(stack, ()))
        if busy >= FELT * facts.wall_s and (written := written_in_part(facts.place(stack).code)):
            yield _rewritten(facts, stack, written, busy)


def _rewritten(facts: Facts, stack: int, array: str, busy: float) -> Finding:
    return facts.finding(
        "donation",
        facts.place(stack),
        operation="jax.jit",
        count=facts.run.jit.outside[stack].events,
        counted=Matching(OutsideOperations, ("stack",), frozenset({(stack,)})),
        cost_s=busy,
        gain_s=facts.won_back_s(busy),
        cause=(
            f"{array} is written in part, outside of any jitted function: a new array is made each time, and all of "
            f"{array} is copied into it. The device was busy for {duration(busy)} with what runs there."
        ),
        advice=(
            f"Write it in a jitted function, made once, that is given {array} for good: put = jax.jit(lambda x, i, "
            f"value: x.at[i].set(value), donate_argnums=0), and {array} = put({array}, ...). XLA then writes in "
            "place. Or have jax.lax.scan, in a jitted function, stack what each turn makes."
        ),
        trifle=False,
        discriminator=array,
    )


def _finding(facts: Facts, event: Undonated, share: float, call: Activity | None, device: int, runs: int) -> Finding:
    within = call.total if call is not None and call.total >= device else 0
    function, names = facts.text(event.func) or "the function", list(event.arguments)
    many = len(names) > NAMED
    listed = ", ".join(names[:NAMED]) + f" and {len(names) - NAMED} more" * many
    alone = len(names) == 1
    written = f'"{names[0]}"' if alone else "(" + ", ".join(f'"{name}"' for name in names) + ")"
    wrapped = _ADVICE.get(event.library, _ADVICE[""]).format(function=function, names=written)
    all_of_it = ' of all arguments: put what you need later into a first one, donate="all-except-first"'
    return facts.finding(
        "donation",
        users(facts.place(event.stack)),  # whoever wraps ``jax.jit``, the call is the program's
        operation="jax.jit",
        count=runs,
        counted=Known((Moment(event.t, 0, runs, size_text(event.bytes)),)),
        cost_s=(within or device) / 1e9,
        gain_s=None if within else facts.won_back_s(device / 1e9),
        cut=replay.doing(call.causes) if call is not None and within else None,
        cause=(
            f"{function} makes results beside {listed}, {size_text(event.bytes)} in {plural(event.arrays, 'array')}, "
            f"{'which has' if alone else 'which have'} the same shapes and which nothing holds after the call: "
            f"{percent(min(1.0, share))} of the memory that it needs. Looked at in "
            f"{f'{event.calls:,} of ' * (runs > event.calls)}{plural(runs, 'recorded call')}."
            + f" The host is in this call for {duration(within / 1e9)} while the device has nothing else to do."
            * bool(within)
            + f" The device copies for {duration(device / 1e9)} of its time in it." * (device > within)
        ),
        advice=(
            f"Give {'it' if alone else 'them'} to XLA for good: {wrapped}"
            f"{all_of_it if event.library == 'equinox' else ''}. The results take "
            f"{'its' if alone else 'their'} place. What the program reads later, of another call, must be a copy: JAX "
            "raises an error where a donated array is used."
        ),
        confidence="high" if event.calls >= NAMED else "medium",
        trifle=False,
        discriminator=function,
    )


KIND = Kind(find, blamed_for=("max_memory",))
