"""cuda_graph: what was compiled to run by CUDA graphs runs without, or they are recorded again and again.

Of ``torch.compile`` with ``mode="reduce-overhead"`` or ``"max-autotune"``. A reason that somebody asked for, and what
the program's own switches leave out, is none. Cost: the recordings beyond the first for the same sizes, or beyond as
many sizes as PyTorch warns of; what runs without has none, for only the launches of its kernels are dearer: how long
the main thread is in its calls is said instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from xlaprof.analysis.evidence.breaks import function_name
from xlaprof.analysis.evidence.counted import Known
from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.evidence.kind import Kind
from xlaprof.analysis.model import Finding, Moment
from xlaprof.analysis.names import NOWHERE
from xlaprof.analysis.principles import HABIT, NAMED
from xlaprof.analysis.recompiles import cuda_graphs
from xlaprof.analysis.recompiles.cuda_graphs import Key, Without
from xlaprof.analysis.sums import grouped
from xlaprof.events import CudaGraph
from xlaprof.text.quantities import duration, plural, times
from xlaprof.text.strings import enumerated

OPERATION = "CUDA graph"
_SIZES = 8  # from which on PyTorch warns: torch._inductor.config.triton.cudagraph_dynamic_shape_warn_limit
_CHOSEN = frozenset({"asked", "dynamic"})
_ADVICE = {
    "mutation": (
        "Write into a parameter or buffer of the module instead, whose place is known; or say that the argument stays "
        "where it is, torch._dynamo.mark_static_address(x) before the first call: a CUDA graph reads a copy of each "
        "other argument."
    ),
    "copy": "Do the copy to or from the host outside the compiled function: return the tensor, and move it there.",
    "cpu": (
        "Make this tensor on the GPU, with device=, or pass the number itself in the place of a tensor on the CPU: a "
        "CUDA graph holds only what the GPU runs."
    ),
    "size": (
        "Keep the size fixed: choose with torch.where or a mask in the place of picking out elements, or take "
        "torch.nonzero_static(size=); or do it outside the compiled function."
    ),
    "operator": "Move this operation out of the compiled function, before or after the call.",
    "limit": (
        "Keep what is passed at one place: copy_ new values into the same tensors, and call "
        "torch.compiler.cudagraph_mark_step_begin() at the begin of each step."
    ),
    "devices": "Give each device a compiled function of its own.",
}
_OTHERWISE = "Look at what PyTorch says of it: TORCH_LOGS=cudagraphs names the operation."


def find(facts: Facts) -> Iterator[Finding]:
    """One finding for each function, reason and line; and for functions that are recorded again and again."""
    for one in cuda_graphs.without(facts):
        if one.kind not in _CHOSEN:
            yield _left_out(facts, one)
    for key, recorded in cuda_graphs.by_function(facts).items():
        sized = cuda_graphs.sized(recorded)
        if len({one.sizes for one in sized}) > _SIZES:
            yield _of_sizes(facts, key, sized)
        moved = grouped((one for one in recorded if one.again), lambda one: (one.again, facts.place(one.line).at))
        for several in moved.values():
            if len(several) >= HABIT:
                yield _moved(facts, key, several)


def _left_out(facts: Facts, one: Without) -> Finding:
    event = one.event
    place = one.place if one.place.line else facts.place(event.stack)
    what = (
        f"All of {_name(facts, one.key)}" if one.whole else f"{plural(one.ops, 'operation')} of {_name(facts, one.key)}"
    )
    runs = "runs" if one.whole or one.ops == 1 else "run"
    rest = "" if one.whole else f", and no CUDA graph goes across {'it' if one.ops == 1 else 'them'}"
    return facts.finding(
        "cuda_graph",
        place,
        operation=OPERATION,
        count=one.graphs,
        counted=Known((Moment(event.t, 0, detail=event.kind),)),
        cost_s=0.0,
        cause=f"{what} {runs} without a CUDA graph, though it was compiled for them{rest}: {cuda_graphs.why(one)}.",
        advice=_ADVICE.get(one.kind, _OTHERWISE),
        trifle=False,
        discriminator=f"{one.kind} {event.operator}",
        also=(facts.place(event.stack), facts.place(event.code)),
        evidence=[f"PyTorch's words: {event.reason}"] * bool(event.reason),
    )


def _of_sizes(facts: Facts, key: Key, sized: list[CudaGraph]) -> Finding:
    different = Counter(one.sizes for one in sized)
    beyond = sized[_SIZES:]
    return facts.finding(
        "cuda_graph",
        facts.place(sized[0].stack),
        operation=OPERATION,
        count=len(sized),
        counted=_moments(sized),
        cost_s=sum(one.dur for one in beyond) / 1e9,
        cause=(
            f"{_name(facts, key)} was recorded as a CUDA graph for {len(different)} sizes of its inputs "
            f"({enumerated(list(different), NAMED)}): {times(len(sized))}, {duration(_ns(sized) / 1e9)} in all."
        ),
        advice=(
            "Pad the inputs to a few sizes (buckets: 64, 128, 256) before the call; or run what has such sizes without "
            "CUDA graphs: torch._inductor.config.triton.cudagraph_skip_dynamic_graphs = True."
        ),
        trifle=False,
        discriminator="sizes",
        values=tuple(different.items()),
        also=(facts.place(sized[0].code),),
    )


def _moved(facts: Facts, key: Key, several: list[CudaGraph]) -> Finding:
    first = several[0]
    place = facts.place(first.line) if first.line else facts.place(first.stack)
    return facts.finding(
        "cuda_graph",
        place if place != NOWHERE else facts.place(first.stack),
        operation=OPERATION,
        count=len(several),
        counted=_moments(several),
        cost_s=_ns(several) / 1e9,
        cause=(
            f"The CUDA graph of {_name(facts, key)} was recorded again {times(len(several))}, "
            f"{duration(_ns(several) / 1e9)} in all, as those before did not fit: {first.again}."
        ),
        advice=(
            "Let parameters and buffers stay where they are: copy_ new values into them in the place of giving them "
            "other memory (p.data = ..., setattr, load_state_dict(assign=True))."
        ),
        trifle=False,
        discriminator=first.again,
        also=(facts.place(first.stack), facts.place(first.code)),
    )


def _name(facts: Facts, key: Key) -> str:
    return function_name(facts, *key) or "the function"


def _ns(several: list[CudaGraph]) -> int:
    return sum(one.dur for one in several)


def _moments(several: list[CudaGraph]) -> Known:
    return Known(tuple(Moment(one.t, one.dur, detail=one.sizes) for one in several))


KIND = Kind(find, blamed_for=("max_idle",))
