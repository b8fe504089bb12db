"""PyTorch's own samples of its operators (the OpInfo database), on ``xla`` beside the CPU.

:func:`sweep` runs every sample of one entry in one dtype: forward, backward, in place and ``out=``. All samples are
recorded first and run by one barrier, so an entry costs one compilation, not hundreds.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import jax
import torch
from op_database import QUICK
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import xlaprof.runtime as xr

from .agreement import Comparison, agree
from .exceptions import REFUSED

DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16, torch.float16)
#: tensors among the arguments of these are on the host for every device: they say what shapes there will be
HOST_ARGUMENTS = {"tensor_split"}
#: what is counted as ``aten::`` and is no operation run on the CPU
_READS = {"aten::_local_scalar_dense"}

#: the peers' figures are of so many samples
FIRST = 6

FORWARD, BACKWARD, IN_PLACE, OUT = "forward", "backward", "in place", "out="


@dataclass(frozen=True)
class Outcome:
    """What became of one entry in one dtype."""

    entry: str
    dtype: str
    samples: int
    #: variant -> number of samples tried
    tried: dict[str, int]
    #: what was wrong, in words; empty when all is right
    failures: tuple[str, ...] = ()
    #: variant -> fallback operator -> how often
    fallbacks: dict[str, dict[str, int]] = field(default_factory=dict)
    #: the same of the first :data:`FIRST` samples forward, which is what others publish
    first: dict[str, int] = field(default_factory=dict)
    #: whether those were right
    first_right: bool = True
    #: how many samples were tried at most; ``None``: all there are
    limit: int | None = None


def dtypes_of(entry: Any) -> list[torch.dtype]:
    """The dtypes of :data:`DTYPES` that the entry has on the CPU; the ones it has, where it has none of them."""
    there = entry.supported_dtypes("cpu")
    return [dtype for dtype in DTYPES if dtype in there] or sorted(there, key=str)[:1]


#: results that one program computes: XLA takes minutes, not seconds, for some thousand samples of pooling at once
AT_ONCE = 200


def sweep(name: str, entry: Any, dtype: torch.dtype, limit: int | None = None) -> Outcome:
    """Try every sample (or the first ``limit``) of ``entry`` in ``dtype``."""
    run = _Run(name, entry, dtype, limit)
    grad = entry.supports_autograd and dtype in entry.supported_backward_dtypes("cpu")
    with warnings.catch_warnings(), _compiled_with(QUICK):
        warnings.simplefilter("ignore")
        torch.manual_seed(20)
        samples = entry.sample_inputs("cpu", dtype, requires_grad=grad)
        for i, sample in enumerate(islice(samples, limit)):
            run.sample(i, sample, grad)
            if len(run.pending) >= AT_ONCE:
                run.verify()
        run.verify()
    xr.clear_compile_cache()
    jax.clear_caches()  # thousands of live programs exhaust the process's memory maps
    return run.outcome()


@contextmanager
def _compiled_with(options: dict[str, Any]) -> Iterator[None]:
    xr.set_custom_compile_options(options)
    try:
        yield
    finally:
        xr.set_custom_compile_options({})


class Seeds(TorchDispatchMode):
    """Notes whether a program draws random numbers, or returns memory nobody wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.drew = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags or "empty" in str(func):
            self.drew = True
        return func(*args, **(kwargs or {}))


class _Place(NamedTuple):
    """A sample, by its number and in words."""

    index: int
    text: str
    sample: Any


class _Pending(NamedTuple):
    """A result on ``xla`` that waits for the barrier, and what the CPU got."""

    variant: str
    where: _Place
    truth: Callable[[], Any] | None
    comparison: Comparison
    got: Any
    expected: Any


class _Run:
    def __init__(self, name: str, entry: Any, dtype: torch.dtype, limit: int | None) -> None:
        self.name, self.entry, self.dtype, self.limit = name, entry, dtype, limit
        self.tried: Counter[str] = Counter()
        self.failures: list[str] = []
        self.fallbacks: dict[str, Counter[str]] = {}
        self.first: Counter[str] = Counter()
        self.wrong_first = False
        self.samples = 0
        self.pending: list[_Pending] = []

    def outcome(self) -> Outcome:
        return Outcome(
            self.name,
            str(self.dtype).removeprefix("torch."),
            self.samples,
            dict(self.tried),
            tuple(self.failures),
            {variant: dict(ops) for variant, ops in self.fallbacks.items() if ops},
            dict(self.first),
            not self.wrong_first,
            self.limit,
        )

    def sample(self, i: int, sample: Any, grad: bool) -> None:
        self.samples += 1
        where = _Place(i, f"sample {i} {sample.summary()[:300]}", sample)
        op = self.entry.get_op()
        with Seeds() as seeds:
            expected = self._expect(op, sample)
        if isinstance(expected, Exception):
            return  # the CPU refuses it too: error inputs have a test of their own
        if self.name not in REFUSED and _formless(expected):
            return  # complex32, which float16 alone leads to
        strict = not seeds.drew

        there = self._record(FORWARD, where, op, sample, expected, strict)
        if grad and there is not None:
            self._backward(where, op, sample, expected, strict, there)
        inplace = self.entry.get_inplace()
        if inplace is not None and not sample.broadcasts_input:
            self._in_place(where, inplace, sample, strict)
        if self.entry.supports_out and isinstance(expected, (torch.Tensor, tuple)):
            self._out(where, op, sample, expected, strict)

    # -- variants -------------------------------------------------------------------------------------

    def _expect(self, op: Any, sample: Any) -> Any:
        try:
            return op(clone(sample.input), *clone(sample.args), **clone(sample.kwargs))
        except Exception as error:
            return error

    def _there(self, sample: Any) -> Any:
        args = sample.args if self.name in HOST_ARGUMENTS else on_xla(sample.args)
        return on_xla(sample.input), args, on_xla(sample.kwargs)

    def _record(self, variant: str, where: _Place, op: Any, sample: Any, expected: Any, strict: bool) -> Any:
        """Call ``op`` with the sample on ``xla``; its result is compared later."""
        self.tried[variant] += 1
        with self._watch(variant, where):
            arguments = self._there(sample)
            result = op(arguments[0], *arguments[1], **arguments[2])
            self._later(variant, where, result, expected, strict, self._truth(op, sample))
            return arguments, result
        return None

    def _backward(self, where: _Place, op: Any, sample: Any, expected: Any, strict: bool, there: Any) -> None:
        process = sample.output_process_fn_grad
        inputs = clone((sample.input, sample.args, sample.kwargs), leaf=True)
        try:
            wanted = gradients(process(op(inputs[0], *inputs[1], **inputs[2])), inputs)
        except Exception:
            return  # the CPU has no gradient for this sample
        if wanted is None:
            return
        self.tried[BACKWARD] += 1

        def truth() -> Any:
            wide = widen(clone((sample.input, sample.args, sample.kwargs), leaf=True))
            return gradients(process(op(wide[0], *wide[1], **wide[2])), wide)

        with self._watch(BACKWARD, where):
            arguments, result = there
            got = gradients(process(result), arguments)
            self._later(BACKWARD, where, got, wanted, strict, truth)

    def _in_place(self, where: _Place, inplace: Any, sample: Any, strict: bool) -> None:
        first = clone(sample.input)
        try:
            with torch.no_grad():
                wanted = inplace(first, *clone(sample.args), **clone(sample.kwargs))
        except Exception:
            return
        self.tried[IN_PLACE] += 1
        with self._watch(IN_PLACE, where), torch.no_grad():
            x, args, kwargs = self._there(sample)
            result = inplace(x, *args, **kwargs)
            truth = self._truth(self.entry.get_op(), sample)
            self._later(IN_PLACE, where, (result, x), (wanted, first), strict, lambda: (truth(),) * 2)

    def _out(self, where: _Place, op: Any, sample: Any, expected: Any, strict: bool) -> None:
        def empty(t: Any) -> Any:
            return torch.full_like(t.detach(), 1) if isinstance(t, torch.Tensor) else t

        target = tree_map(empty, expected)
        try:
            with torch.no_grad():
                op(clone(sample.input), *clone(sample.args), **clone(sample.kwargs), out=target)
        except Exception:
            return
        self.tried[OUT] += 1
        with self._watch(OUT, where), torch.no_grad():
            x, args, kwargs = self._there(sample)
            there = on_xla(tree_map(empty, expected))
            op(x, *args, **kwargs, out=there)
            self._later(OUT, where, there, target, strict, self._truth(op, sample))

    # -- comparing ------------------------------------------------------------------------------------

    def _truth(self, op: Any, sample: Any) -> Callable[[], Any]:
        def truth() -> Any:
            wide = widen(clone((sample.input, sample.args, sample.kwargs)))
            return op(wide[0], *wide[1], **wide[2])

        return truth

    def _twice(self, sample: Any) -> Callable[[], Any]:
        once = self._truth(self.entry.get_op(), sample)

        def truth() -> Any:
            result = once()
            return result, result

        return truth

    def _later(
        self, variant: str, where: _Place, got: Any, expected: Any, strict: bool, truth: Callable[[], Any] | None
    ) -> None:
        comparison = Comparison(self.name, self.entry, self.dtype, strict, where.sample, variant == BACKWARD)
        self.pending.append(_Pending(variant, where, truth, comparison, got, expected))

    def _wrong(self, variant: str, where: _Place, error: BaseException) -> None:
        self.failures.append(f"{variant}, {where.text}: {_said(error)}")
        self.wrong_first |= variant == FORWARD and where.index < FIRST

    def verify(self) -> None:
        """Run all that was recorded, and compare."""
        try:
            xr.sync()
        except Exception as error:
            self.failures.append(f"barrier: {_said(error)}")
            self.wrong_first = True
            return
        for p in self.pending:
            try:
                agree(p.comparison, to_host(p.got), p.expected, p.truth)
            except Exception as error:
                self._wrong(p.variant, p.where, error)
        self.pending.clear()

    @contextmanager
    def _watch(self, variant: str, where: _Place) -> Iterator[None]:
        """Book the fallbacks inside under ``variant``, and what is raised as a failure."""
        before, _ = xr.metrics.totals()
        try:
            yield
        except Exception as error:
            self._wrong(variant, where, error)
        after, _ = xr.metrics.totals()
        mine = self.fallbacks.setdefault(variant, Counter())
        for counter, n in after.items():
            if "::" in counter and counter not in _READS and n > before.get(counter, 0):
                mine[counter] += n - before.get(counter, 0)
                if variant == FORWARD and where.index < FIRST:
                    self.first[counter] += n - before.get(counter, 0)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"


# -- tensors of a sample ------------------------------------------------------------------------------


def _formless(value: Any) -> bool:
    return any(isinstance(t, torch.Tensor) and t.dtype is torch.complex32 for t in tree_leaves(value))


def _move(value: Any, device: str) -> Any:
    def move(t: Any) -> Any:
        if isinstance(t, torch.Tensor):
            return t.detach().to(device).requires_grad_(t.requires_grad)
        return torch.device(device) if t == torch.device("cpu") or t == "cpu" else t

    return tree_map(move, value)


def on_xla(value: Any) -> Any:
    """A copy on ``xla``, tensors that want gradients as leaves."""
    return _move(value, "xla")


def to_host(value: Any) -> Any:
    return tree_map(lambda t: t.detach().cpu() if isinstance(t, torch.Tensor) else t, value)


def clone(value: Any, leaf: bool = False) -> Any:
    def one(t: Any) -> Any:
        if not isinstance(t, torch.Tensor):
            return t
        return t.detach().clone().requires_grad_(t.requires_grad and leaf)

    return tree_map(one, value)


def widen(value: Any) -> Any:
    """The same in float64."""
    wide = {torch.complex64: torch.complex128, torch.complex32: torch.complex128}

    def one(t: Any) -> Any:
        if isinstance(t, torch.Tensor) and (t.is_floating_point() or t.is_complex()):
            return t.detach().to(wide.get(t.dtype, torch.float64)).requires_grad_(t.requires_grad)
        if isinstance(t, torch.dtype) and t.is_floating_point:
            return torch.float64
        return t

    return tree_map(one, value)


def gradients(result: Any, inputs: Any) -> Any:
    """Gradients of a weighted sum of ``result`` with respect to the leaves of ``inputs``; ``None`` without any."""
    outs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    leaves = [t for t in tree_leaves(inputs) if isinstance(t, torch.Tensor) and t.requires_grad]
    if not outs or not leaves:
        return None
    return list(torch.autograd.grad(outs, leaves, [weights(t) for t in outs], allow_unused=True))


def weights(t: torch.Tensor) -> torch.Tensor:
    """A fixed cotangent that treats no two elements alike."""
    n = max(t.numel(), 1)
    w = torch.linspace(0.5, 1.5, n, dtype=torch.float64)[: t.numel()].reshape(t.shape).to(t.dtype)
    return w.to(t.device)
