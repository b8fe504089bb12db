"""Every lowering against the operator it stands for.

:class:`Checker` watches any CPU PyTorch program: each ATen overload called inside that has a lowering is also run
through it, under ``jax.jit`` with 64-bit jax, and must agree with what PyTorch returned. ``Scalar`` arguments are
given twice: as Python numbers, and packed as the tape packs them.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import torch
from torch._ops import OpOverload
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from xlaprof.runtime.lowering.registry import JAX_DTYPE, Aval, Ctx, Unsupported
from xlaprof.runtime.lowering.table import LOWERINGS, RANDOM, STATIC

#: numpy has no such dtypes: their bits travel as integers
_BITS = {
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.int8, ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: (torch.int8, ml_dtypes.float8_e5m2),
}
_TOLERANCE = {  # rtol, atol
    torch.float64: (1e-9, 1e-9),
    torch.complex128: (1e-9, 1e-9),
    torch.float32: (2e-5, 2e-5),
    torch.complex64: (2e-5, 2e-5),
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (1.6e-2, 1.6e-2),
}
#: eigenvectors and singular vectors have no sign of their own: magnitudes are compared
_UP_TO_SIGN = {"aten._linalg_eigh.default", "aten._linalg_svd.default"}
#: errors grow with the largest element (float32 PyTorch is as far from float64): the tolerance does too
_BY_NORM = {
    "aten.linalg_matrix_exp.default",
    "aten.linalg_inv_ex.default",
    "aten._linalg_solve_ex.default",
    "aten.linalg_solve_triangular.default",
    "aten.triangular_solve.default",
    "aten.polygamma.default",
}
#: what these return depends on the storage behind their argument, which the tape knows and a copy does not
_OF_STORAGE = {"aten.as_strided.default", "aten.as_strided_scatter.default"}
#: operators that may return the index of any of equal elements -> the place of ``dim`` among their arguments
_ANY_OF_EQUALS = {"aten.sort.default": 1, "aten.topk.default": 2, "aten.kthvalue.default": 2}
_LEFT_OUT = ("layout", "device", "pin_memory")


def to_jax(t: torch.Tensor) -> np.ndarray:
    t = t.detach().resolve_conj().resolve_neg().contiguous()
    if t._is_zerotensor():
        t = torch.zeros(t.shape, dtype=t.dtype)
    if t.dtype in _BITS:
        bits, dtype = _BITS[t.dtype]
        return t.view(bits).numpy().view(dtype).copy()
    return t.numpy().copy()


def to_torch(a: jax.Array | np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    values = np.array(a)
    if dtype in _BITS:
        bits = np.int8 if values.dtype.itemsize == 1 else np.int16
        return torch.from_numpy(values.view(bits)).view(dtype)
    return torch.from_numpy(values)


def functional(op: OpOverload) -> OpOverload | None:
    """The overload the tape calls instead of an in-place or ``out=`` one; ``None`` where there is none."""
    schema = op._schema
    if not schema.is_mutable or str(op) in LOWERINGS:
        return op
    name = schema.name.split("::")[1]
    packet = getattr(torch.ops.aten, name.removesuffix("_"), None)
    wanted = [(a.name, str(a.type)) for a in schema.arguments if not a.is_out]
    for overload in packet.overloads() if packet is not None else ():
        candidate = getattr(packet, overload)
        if not candidate._schema.is_mutable and wanted == [(a.name, str(a.type)) for a in candidate._schema.arguments]:
            return candidate
    return None


class Checker(TorchDispatchMode):
    """Run under it, a program checks every lowering it meets; ``failures`` tells what disagreed."""

    def __init__(self) -> None:
        super().__init__()
        self.checked: Counter[str] = Counter()
        #: overloads without lowering
        self.missing: Counter[str] = Counter()
        #: lowerings that declined these arguments
        self.declined: Counter[str] = Counter()
        self.failures: list[str] = []
        self._pending: list[_Run] = []
        self._programs = 0

    def __torch_dispatch__(self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        twin = functional(func)
        if twin is None or str(twin) not in LOWERINGS or str(twin) in _OF_STORAGE:
            self.missing[str(func)] += 1
            return func(*args, **kwargs)
        given = {a.name for a in func._schema.arguments if a.is_out}
        call = _Call(twin, args, {k: v for k, v in kwargs.items() if k not in given})
        result = func(*args, **kwargs)
        expected = list(result) if isinstance(result, (tuple, list)) else [result]
        if all(e is None or e.dtype in JAX_DTYPE for e in expected):
            expected = [None if e is None else e.detach().resolve_conj().resolve_neg().clone() for e in expected]
            self._pending += [_Run(call, expected, p) for p in ((False, True) if call.numbers else (False,))]
            if len(self._pending) >= 200:
                self.verify()
        return result

    def verify(self) -> None:
        """Run the lowerings of all calls seen so far, as one program, and compare."""
        runs, self._pending = self._pending, []
        if not runs:
            return

        def program(tensors: list[list[jax.Array]], numbers: list[list[jax.Array]], key: Any) -> list[Any]:
            return [run.lowered(t, n, key) for run, t, n in zip(runs, tensors, numbers, strict=True)]

        with jax.enable_x64(True), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            tensors = [[jnp.asarray(t) for t in run.call.tensors] for run in runs]
            numbers = [[np.asarray(n) for n in run.call.numbers] for run in runs]
            outputs = jax.jit(program)(tensors, numbers, jax.random.key(0))
        for run, got in zip(runs, outputs, strict=True):
            name = str(run.call.op)
            try:
                run.compare(got)
                self.checked[name] += 1
            except Unsupported:
                self.declined[name] += 1
            except Exception as e:  # a failure is reported with the call that caused it
                how = "packed numbers" if run.packed else "Python numbers" if run.call.numbers else "tensors"
                text = str(e).strip()
                self.failures.append(f"{name} ({how}) of {run.call.describe()}\n    {type(e).__name__}: {text[:600]}")
        self._programs += 1
        if self._programs % 20 == 0:
            jax.clear_caches()  # thousands of live programs exhaust the process's memory maps


class _Tensor:
    """Stands for the i-th tensor of a call."""

    def __init__(self, index: int) -> None:
        self.index = index


class _Number:
    """Stands for the i-th number of a call."""

    def __init__(self, index: int) -> None:
        self.index = index


def _is_tensor_type(type_: Any) -> bool:
    return "Tensor" in str(type_)


class _Call:
    """One call of an overload, its tensors and numbers taken out (and copied, before an in-place write)."""

    def __init__(self, op: OpOverload, args: Any, kwargs: Any) -> None:
        self.op = op
        self.tensors: list[np.ndarray] = []
        self.numbers: list[float | int] = []
        schema = op._schema.arguments
        static = STATIC.get(str(op), frozenset())
        self.args = tuple(self._take(a.type, v, a.name in static) for a, v in zip(schema, args, strict=False))
        types = {a.name: a.type for a in schema}
        self.kwargs = {
            k: self._take(types[k], v, k in static) for k, v in kwargs.items() if k not in _LEFT_OUT and k in types
        }

    def _take(self, type_: Any, value: Any, static: bool) -> Any:
        if isinstance(value, torch.Tensor):
            self.tensors.append(to_jax(value))
            return _Tensor(len(self.tensors) - 1)
        if isinstance(value, (list, tuple)):
            return tuple(self._take(type_, v, static) for v in value)
        packable = not static and ("number" in str(type_) or _is_tensor_type(type_))
        if packable and type(value) in (int, float) and value not in (0, 1, -1):
            self.numbers.append(value)
            return _Number(len(self.numbers) - 1)
        return value

    def describe(self) -> str:
        def show(v: Any) -> Any:
            if isinstance(v, _Tensor):
                t = self.tensors[v.index]
                return f"{t.dtype}{list(t.shape)}"
            if isinstance(v, _Number):
                return self.numbers[v.index]
            return tuple(map(show, v)) if isinstance(v, tuple) else v

        return f"{tuple(map(show, self.args))} { {k: show(v) for k, v in self.kwargs.items()} }"

    def arguments(self, tensors: list[jax.Array], numbers: list[Any]) -> tuple[Any, dict[str, Any]]:
        """The call's arguments, with these tensors and numbers in their places."""

        def put(v: Any) -> Any:
            if isinstance(v, _Tensor):
                return tensors[v.index]
            if isinstance(v, _Number):
                return numbers[v.index]
            return tuple(map(put, v)) if isinstance(v, tuple) else v

        return tuple(map(put, self.args)), {k: put(v) for k, v in self.kwargs.items()}


class _Run:
    """One way to run the lowering of a call, and what PyTorch returned."""

    def __init__(self, call: _Call, expected: list[torch.Tensor | None], packed: bool) -> None:
        self.call = call
        self.expected = expected
        self.packed = packed
        self.error: Exception | None = None

    def lowered(self, tensors: list[jax.Array], numbers: list[jax.Array], key: Any) -> Any:
        """Trace the lowering; what it raises is kept for :meth:`compare`."""
        name = str(self.call.op)
        avals = tuple(None if e is None else Aval(tuple(e.shape), e.dtype) for e in self.expected)
        ctx = Ctx(avals, key if name in RANDOM else None, frozenset(map(id, numbers)))  # type: ignore[arg-type]
        try:
            args, kwargs = self.call.arguments(tensors, list(numbers) if self.packed else self.call.numbers)
            out = LOWERINGS[name](ctx, *args, **kwargs)
            out = tuple(out) if isinstance(out, (tuple, list)) else (out,)
            assert len(out) == len(avals), f"{len(out)} outputs for {len(avals)}"
            return tuple(None if a is None else jnp.asarray(o).astype(a.jax) for o, a in zip(out, avals, strict=True))
        except Exception as e:
            self.error = e
            return ()

    def compare(self, got: tuple[Any, ...]) -> None:
        if self.error is not None:
            raise self.error
        name = str(self.call.op)
        for i, (g, e) in enumerate(zip(got, self.expected, strict=True)):
            if e is None:
                continue
            assert g.shape == tuple(e.shape), f"output {i}: shape {g.shape}, not {tuple(e.shape)}"
            if name in RANDOM or "empty" in name:
                continue
            g = to_torch(g, e.dtype)
            if i == 1 and name in _ANY_OF_EQUALS:
                g, e = self._found(g), self._found(e)
            if name in _UP_TO_SIGN:
                g, e = g.abs(), e.abs()
            rtol, atol = _TOLERANCE.get(e.dtype, (0, 0))
            if name in _BY_NORM and e.numel():
                atol *= max(1.0, e.abs().nan_to_num(0, 0, 0).max().item())
            try:
                torch.testing.assert_close(g, e, rtol=rtol, atol=atol, equal_nan=True)
            except AssertionError:
                if e.dtype is not torch.float32 or not self._as_near_to_the_truth(i, g, e):
                    raise

    def _as_near_to_the_truth(self, i: int, ours: torch.Tensor, theirs: torch.Tensor) -> bool:
        """Where float32 has few right digits: is our output ``i`` no further from float64's than PyTorch's is?"""

        def wide(array: np.ndarray) -> torch.Tensor:
            tensor = torch.from_numpy(array)
            return tensor.double() if tensor.dtype is torch.float32 else tensor

        args, kwargs = self.call.arguments([wide(array) for array in self.call.tensors], self.call.numbers)
        truth = self.call.op(*args, **kwargs)
        truth = (truth if isinstance(truth, (tuple, list)) else (truth,))[i]
        return bool((ours - truth).abs().max() <= (theirs - truth).abs().max())

    def _found(self, indices: torch.Tensor) -> torch.Tensor:
        """The elements at the ``indices`` that an operator of ``_ANY_OF_EQUALS`` returned."""
        place = _ANY_OF_EQUALS[str(self.call.op)]
        dim = self.call.args[place] if len(self.call.args) > place else -1
        values = self.expected[0]
        assert values is not None
        x = to_torch(self.call.tensors[0], values.dtype)
        if indices.dim() < x.dim():
            indices = indices.unsqueeze(dim)
        return x.gather(dim, indices) if x.dim() else x


def check(program: Callable[..., Any], *args: Any) -> Checker:
    """Run ``program(*args)`` checking every lowering it meets; at least one must be met, and all must agree."""
    with Checker() as checker:
        program(*args)
    checker.verify()
    assert not checker.failures, "\n".join(checker.failures)
    assert checker.checked, f"no lowering was met; without one: {dict(checker.missing)}"
    return checker


def samples(op: Any, dtype: torch.dtype, limit: int, requires_grad: bool) -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        iterator = iter(op.sample_inputs("cpu", dtype, requires_grad=requires_grad))
        for _ in range(limit):
            sample = next(iterator, None)
            if sample is None:
                return
            yield sample


def check_op_info(
    op: Any,
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.int64, torch.bool),
    limit: int = 3,
    checker: Checker | None = None,
) -> Checker:
    """Run the first samples of an OpInfo entry, forward and (where it has one) backward."""
    checker = checker or Checker()
    for dtype in dtypes:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
        for sample in samples(op, dtype, limit, grad):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.manual_seed(0)
                with checker:
                    out = op(sample.input, *sample.args, **sample.kwargs)
                    if grad:
                        backward(out)
    checker.verify()
    return checker


def backward(out: Any) -> None:
    leaves = [t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor) and t.requires_grad]
    if leaves:
        torch.autograd.backward(leaves, [torch.ones_like(t) for t in leaves])
