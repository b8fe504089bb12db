"""donation: a jitted function makes results beside arguments of the same shapes that nothing needs any more.

Of JAX's programs. XLA could write the results in the place of these arguments, if they were donated. Counted are large
arrays that were gone when the function was called next, in each of the calls looked at. Cost: none in seconds;
memory, as much as the arguments take.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from xlaprof.analysis.evidence.counted import Known
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.fold.jit import memory
from xlaprof.analysis.model import Finding, Moment
from xlaprof.analysis.principles import DEAR, NAMED
from xlaprof.events import Undonated
from xlaprof.text.quantities import percent, plural, size_text

_BYTES = 32 << 20  # for less nobody changes a program
#: how each wrapper of ``jax.jit`` is told; filled with the arguments' names
_ADVICE = {
    "": "jax.jit({function}, donate_argnames={names})",
    "flax": "nnx.jit({function}, donate_argnames={names})",
    "equinox": 'equinox.filter_jit({function}, donate="all")',
}


def find(facts: Facts) -> Iterator[Finding]:
    """At most one finding for each line that calls such a function: by the program that was looked at last."""
    latest = {(event.func, event.stack): event for event in facts.run.jit.undonated}
    for event in latest.values():
        share = _share(facts, event)
        if event.bytes >= _BYTES and share >= DEAR:
            yield _finding(facts, event, share)


def _share(facts: Facts, event: Undonated) -> float:
    """Of the memory that the program needs on all its devices."""
    needs = facts.run.jit.needs.get((event.func, event.stack))
    return 1.0 if needs is None else event.bytes / max(1, memory(needs.largest) * max(1, needs.largest.devices))


def _finding(facts: Facts, event: Undonated, share: float) -> Finding:
    function, names = facts.text(event.func) or "the function", list(event.arguments)
    many = len(names) > NAMED
    listed = ", ".join(names[:NAMED]) + f" and {len(names) - NAMED} more" * many
    alone = len(names) == 1
    written = f'"{names[0]}"' if alone else "(" + ", ".join(f'"{name}"' for name in names) + ")"
    wrapped = _ADVICE.get(event.library, _ADVICE[""]).format(function=function, names=written)
    all_of_it = ' of all arguments: put what you need later into a first one, donate="all-except-first"'
    return facts.finding(
        "donation",
        replace(facts.place(event.stack), library=()),  # whoever wraps ``jax.jit``, the call is the program's
        operation="jax.jit",
        count=event.calls,
        counted=Known((Moment(event.t, 0, event.calls, size_text(event.bytes)),)),
        cost_s=0.0,
        cause=(
            f"{function} makes results beside {listed}, {size_text(event.bytes)} in {plural(event.arrays, 'array')}, "
            f"{'which has' if alone else 'which have'} the same shapes and which nothing holds after the call: "
            f"{percent(min(1.0, share))} of the memory that it needs. Looked at in {plural(event.calls, 'call')}."
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
