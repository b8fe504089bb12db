"""What the code that inductor generated for a graph runs, and which operations it fused into one kernel."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from heapq import nlargest

from xlaprof.analysis.evidence.facts import Facts
from xlaprof.analysis.model.compiled import GraphCodeStat, KernelStat
from xlaprof.analysis.principles import LISTED, NAMED
from xlaprof.events import GeneratedCode
from xlaprof.text.quantities import plural
from xlaprof.text.strings import enumerated

Key = tuple[int, int]  # of a function: stack of its definition, name

#: operations that a kernel has beside what it computes: views, casts, copies, and tensors of one value
_BESIDE = {
    "_to_copy", "_unsafe_view", "alias", "arange", "as_strided", "clone", "copy_", "detach", "expand", "fill", "full",
    "full_like", "lift_fresh", "lift_fresh_copy", "ones", "permute", "reshape", "scalar_tensor", "select", "slice",
    "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unsqueeze", "view", "zeros", "zeros_like",
}  # fmt: skip


def stats(facts: Facts) -> dict[Key, tuple[GraphCodeStat, ...]]:
    """Of each function the code of its graphs and versions, in the order of compilation."""
    return {key: tuple(_stat(facts, one) for one in code[:LISTED]) for key, code in _by_function(facts).items()}


def said(facts: Facts) -> dict[Key, tuple[str, ...]]:
    """The same in words: of each graph the version that was compiled last."""
    return {key: tuple(in_words(_latest(code))) for key, code in _by_function(facts).items()}


def _by_function(facts: Facts) -> Mapping[Key, list[GeneratedCode]]:
    found: defaultdict[Key, list[GeneratedCode]] = defaultdict(list)
    for one in facts.run.torch_compile.generated:
        found[one.code, one.func].append(one)
    return found


def _stat(facts: Facts, one: GeneratedCode) -> GraphCodeStat:
    return GraphCodeStat(
        compile=one.compile,
        backward=one.backward,
        line=facts.place(one.resumed).line,
        launches=one.launches,
        calls=one.calls,
        copies=one.copies,
        kernels=tuple(KernelStat(kernel.name, tuple(kernel.ops), kernel.calls) for kernel in one.kernels[:LISTED]),
        library=tuple(nlargest(LISTED, one.library.items(), key=lambda item: item[1])),
    )


def _latest(code: Iterable[GeneratedCode]) -> list[GeneratedCode]:
    """Of each of Dynamo's frames the last version; of one that DistributedDataParallel had split all of its parts."""
    last: dict[str, str] = {}
    for one in code:
        last[one.compile.rpartition("/")[0]] = one.compile
    return [one for one in code if one.compile in last.values()]


def in_words(code: Iterable[GeneratedCode]) -> Iterator[str]:
    """What a call of these graphs runs, forward and backward: kernels, with what one of them fuses, and other calls."""
    code = list(code)
    for backward, what in ((False, "runs"), (True, "its backward pass runs")):
        if part := [one for one in code if one.backward is backward]:
            yield f"{what} {_counted(part)}"


def _counted(code: list[GeneratedCode]) -> str:
    library = Counter[str]()
    for one in code:
        library.update(one.library)
    fused = "; ".join(_fused(code))
    parts = [f"{plural(sum(one.launches for one in code), 'kernel')}{f' ({fused})' * bool(fused)}"]
    if library:
        named = [f"{count:,} x {name}" if count > 1 else name for name, count in library.most_common()]
        parts.append(f"{plural(sum(one.calls for one in code), 'library call')} ({enumerated(named, NAMED)})")
    if copies := sum(one.copies for one in code):
        parts.append(f"{copies:,} cop{'y' if copies == 1 else 'ies'} between devices")
    return enumerated(parts, len(parts))


def _fused(code: list[GeneratedCode]) -> Iterator[str]:
    """Which operations one kernel computes; first those that save most.

    What a library is called for has its name in kernels, too, that only bring its inputs into form.
    """
    kernels = Counter[tuple[str, ...]]()
    for one in code:
        for kernel in one.kernels:
            names = [op.strip("_") for op in kernel.ops if op not in _BESIDE and op not in one.library]
            kernels[tuple(dict.fromkeys(names))] += kernel.calls
    several = sorted((one for one in kernels if len(one) > 1), key=lambda one: (1 - len(one)) * kernels[one])
    for ops in several[:NAMED]:
        times = f"each of {kernels[ops]:,}" if kernels[ops] > 1 else "one"
        yield f"{enumerated(list(ops), 2 * NAMED)} in {times}"
    if left := sum(kernels[ops] for ops in several[NAMED:]):
        yield f"{left:,} more fuse others"
