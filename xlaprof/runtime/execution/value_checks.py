"""Debug checks: the errors that eager PyTorch raises for *values*, compiled into programs.

For an index out of range, a probability below zero or an integer division by zero, eager PyTorch checks the values and
raises. Here that would mean waiting for the program, so, as on every XLA device, reads are clamped and writes dropped.
While debug checks are on, programs are compiled with these tests inside. The first test that fails is raised as
PyTorch's error, with the operation and its line, when the host next waits for the program: at a read,
``sync(wait=True)``, ``wait_device_ops()`` or the next barrier. Programs compiled while they are off are unchanged.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

from xlaprof.runtime.lowering.registry import overloads
from xlaprof.runtime.tape.graph import place
from xlaprof.runtime.trace.errors import final

if TYPE_CHECKING:
    from xlaprof.runtime.trace.trie import Node

#: are they on? (:func:`debug_checks`; ``XLAPROF_DEBUG_CHECKS=1`` turns them on from the start)
enabled = os.environ.get("XLAPROF_DEBUG_CHECKS", "0") not in ("", "0", "false")


class Check(NamedTuple):
    """A test in a program: it fails where ``bad`` is true, and reports the first such value."""

    values: Any
    bad: Any
    kind: type[Exception]
    text: str  # {value}: the offending one; {at}: its number


class Test(NamedTuple):
    """The error of a test in a compiled program."""

    kind: type[Exception]
    text: str
    node: Node


@contextmanager
def debug_checks(enable: bool = True) -> Iterator[None]:
    """Within, raise eager PyTorch's errors for bad values. It recompiles every graph, and programs are slower.

    >>> with xr.debug_checks():
    ...     loss = train_step(batch)
    ...     xr.sync(wait=True)
    IndexError: index 50257 is out of bounds for dimension 0 with size 50257 (aten::index at train.py:12)
    """
    global enabled
    before, enabled = enabled, enable
    try:
        yield
    finally:
        enabled = before


def tests(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Test], list[jax.Array]]:
    """The tests of one operation over traced values, and for each a row ``[failed, offending value, at]`` (s64[3])."""
    op = node.op
    rule = _RULES.get(str(getattr(op, "twin", None) or op.name)) if op is not None and op.func is not None else None
    if op is None or rule is None:
        return [], []
    checks = rule(**dict(zip(op.names, args, strict=False)), **kwargs)
    rows = []
    for check in checks:
        bad = check.bad.reshape(-1)
        at = jnp.argmax(bad) if bad.size else jnp.zeros((), jnp.int64)
        first = check.values.reshape(-1)[at] if bad.size else at
        rows.append(jnp.stack([part.astype(jnp.int64) for part in (jnp.any(bad), first, at)]))
    return [Test(check.kind, check.text, node) for check in checks], rows


def verdict(tests: list[Test], rows: np.ndarray[Any, Any]) -> Exception | None:
    """The error of the first test that failed when the program ran."""
    for test, (failed, value, at) in zip(tests, rows.tolist(), strict=True):
        if failed:
            return final(test.kind(f"{test.text.format(value=value, at=at)} ({place(test.node)})"))
    return None


# -- the rules: keyword arguments are the operator's, by the names of its schema ----------------------

Rule = Callable[..., list[Check]]


def _within(index: Any, size: int, kind: type[Exception], text: str, *, negative: bool = False) -> Check:
    return Check(index, (index < (-size if negative else 0)) | (index >= size), kind, text)


def _bounds(dim: int, size: int) -> str:
    return f"index {{value}} is out of bounds for dimension {dim} with size {size}"


def _size(x: Any, dim: int) -> int:
    return int(x.shape[dim]) if x.ndim else 1


def _index(self: Any, indices: Any, **_: Any) -> list[Check]:
    return [
        _within(index, self.shape[dim], IndexError, _bounds(dim, self.shape[dim]), negative=True)
        for dim, index in enumerate(indices)
        if index is not None and index.dtype not in (jnp.bool_, jnp.uint8)
    ]


def _index_put(self: Any, indices: Any, values: Any, **_: Any) -> list[Check]:
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if len(given) != 1 or given[0][1].dtype not in (jnp.bool_, jnp.uint8):
        return _index(self, indices)
    # One mask: it must select as many elements as there are values, unless one value is broadcast.
    ((dim, mask),) = given
    before, after = self.shape[:dim], self.shape[dim + mask.ndim :]
    if values.ndim <= len(after) or values.shape[-1 - len(after)] == 1:
        return []
    selected = ", ".join(map(str, (*before, "{value}", *after)))
    text = (
        f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to indexing result of shape "
        f"[{selected}]"
    )
    count = jnp.count_nonzero(mask)
    return [Check(count, count != values.shape[-1 - len(after)], RuntimeError, text)]


def _masked_scatter(self: Any, mask: Any, source: Any) -> list[Check]:
    count = jnp.count_nonzero(jnp.broadcast_to(mask, jnp.broadcast_shapes(self.shape, mask.shape)))
    return [Check(count, count > source.size, RuntimeError, "Number of elements of source < number of ones in mask")]


def _repeat_interleave(repeats: Any, *, output_size: int) -> list[Check]:
    total = jnp.sum(repeats)
    return [
        Check(repeats, repeats < 0, RuntimeError, "repeats can not be negative"),
        Check(total, total != output_size, RuntimeError, "allocated size does not match required size"),
    ]


_OUT_OF_RANGE = IndexError, "index out of range in self"


def _along(kind: type[Exception], text: str = "", *, negative: bool = False) -> Rule:
    """Indices along the dimension ``dim``; ``text`` is the beginning of the message."""

    def rule(self: Any, dim: int, index: Any, **_: Any) -> list[Check]:
        size = _size(self, dim)
        return [_within(index, size, kind, text + _bounds(dim % max(self.ndim, 1), size), negative=negative)]

    return rule


def _index_add(self: Any, dim: int, index: Any, **_: Any) -> list[Check]:
    if self.ndim > 1:
        return _along(RuntimeError)(self=self, dim=dim, index=index)
    return [_within(index, self.size, *_OUT_OF_RANGE)]


def _take(self: Any, index: Any, **_: Any) -> list[Check]:
    text = f"out of range: tried to access index {{value}} on a tensor of {self.size} elements."
    return [_within(index, self.size, IndexError, text, negative=True)]


def _nll_loss(self: Any, target: Any, ignore_index: int, **_: Any) -> list[Check]:
    check = _within(target, self.shape[1 if self.ndim > 1 else 0], IndexError, "Target {value} is out of bounds.")
    return [check._replace(bad=check.bad & (target != ignore_index))]


def _margin_loss(self: Any, target: Any, **_: Any) -> list[Check]:
    return [_within(target, self.shape[-1], RuntimeError, "target out of range")]


def _labels(self: Any, target: Any, **_: Any) -> list[Check]:
    bad = (target < -1) | (target >= self.shape[-1])
    return [Check(target, bad, RuntimeError, "argument #2 'target' is out of range")]


def _embedding_bag(weight: Any, indices: Any, offsets: Any, **_: Any) -> list[Check]:
    text = f"Index {{at}} of input takes value {{value}} which is not in the valid range [0, {weight.shape[0]})"
    begin = (
        "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. "
        "However, got {value}"
    )
    count = indices.shape[0]
    end = f"offsets[-1] can not be greater than input's length {count} but got offsets[-1] of {{value}}"
    first, last = offsets[:1], offsets[-1:]
    return [
        Check(first, first != 0, RuntimeError, begin),
        Check(last, last > count, RuntimeError, end),
        _within(indices, weight.shape[0], RuntimeError, text),
    ]


def _max_unpool(indices: Any, output_size: Any, **_: Any) -> list[Check]:
    text = f"Found an invalid max index: {{value}} (output volumes are of size {'x'.join(map(str, output_size))}"
    return [_within(indices, math.prod(output_size), RuntimeError, text)]


def _searchsorted(sorted_sequence: Any, sorter: Any = None, **_: Any) -> list[Check]:
    text = "torch.searchsorted(): sorter index out of range"
    return [] if sorter is None else [_within(sorter, sorted_sequence.shape[-1], RuntimeError, text)]


def _segment_reduce(
    data: Any, lengths: Any = None, offsets: Any = None, axis: int = 0, unsafe: bool = False, **_: Any
) -> list[Check]:
    if offsets is not None:
        between = jnp.diff(offsets, axis=-1)
        return [Check(between, between < 0, RuntimeError, "Expected segment_length >= 0 to be true, but got false.")]
    if lengths is None or unsafe:
        return []
    sums = jnp.sum(lengths, axis=-1)
    rows = (
        "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe."
    )
    return [
        Check(lengths, lengths < 0, RuntimeError, "lengths contains negative value!"),
        Check(sums, sums != data.shape[axis], RuntimeError, rows),
    ]


def _classes(self: Any, num_classes: int) -> list[Check]:
    return [
        Check(self, self < 0, RuntimeError, "Class values must be non-negative."),
        Check(self, self >= num_classes, RuntimeError, "Class values must be smaller than num_classes."),
    ]


def _lu_unpack(LU_data: Any, LU_pivots: Any, unpack_pivots: bool = True, **_: Any) -> list[Check]:
    text = (
        "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive."
        "Did you properly pass the result of lu_factor?"
    )
    return [_within(LU_pivots - 1, LU_data.shape[-2], RuntimeError, text)] if unpack_pivots else []


def _ctc_loss(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, **_: Any) -> list[Check]:
    steps = log_probs.shape[0]
    text = f"Expected input_lengths to have value at most {steps}, but got value {{value}}"
    if targets.ndim == 1:  # one after the other
        needed, size = target_lengths.sum(), "size {value} at dimension 0"
        unfit = needed != targets.shape[0]
    else:
        needed, size = target_lengths.max(initial=0), "size at least {value} at dimension 1"
        unfit = needed > targets.shape[1]
    of = f"Expected tensor to have {size}, but got size {targets.shape[-1]} for argument #2 'targets'"
    return [
        Check(input_lengths, input_lengths > steps, RuntimeError, text),
        Check(needed, unfit, RuntimeError, f"{of} (while checking arguments for ctc_loss_allocate_outputs)"),
    ]


# -- floats: a comparison that NaN fails is written the other way round -------------------------------


def _between_0_and_1(values: Any, text: str) -> Check:
    return Check(values, ~((values >= 0) & (values <= 1)), RuntimeError, text)


_P_IN = "Expected p_in >= 0 && p_in <= 1 to be true, but got false."


def _binary_cross_entropy(self: Any, target: Any, **_: Any) -> list[Check]:
    return [
        _between_0_and_1(self, "all elements of input should be between 0 and 1"),
        _between_0_and_1(target, "all elements of target should be between 0 and 1"),
    ]


def _no_negative(name: str, text: str) -> Rule:
    return lambda **given: [Check(given[name], ~(given[name] >= 0), RuntimeError, text)]


def _matrices(name: str, text: str, bad: Callable[[Any], Any]) -> Rule:
    """``bad`` says of each element of matrices whether it shows that the decomposition ``name`` fails."""

    def rule(**given: Any) -> list[Check]:
        wrong = jnp.any(bad(next(iter(given.values()))), axis=(-2, -1))
        batch = "(Batch element {at}): " if wrong.ndim else ""
        kind: type[Exception] = torch.linalg.LinAlgError  # type: ignore[attr-defined]
        return [Check(wrong, wrong, kind, f"{name}: {batch}{text}")]

    return rule


def _histc(self: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> list[Check]:
    return _finite(self, "torch.histc: range of [") if min == max else []


def _histogram(self: Any, range: Any = None, **_: Any) -> list[Check]:
    return _finite(self, "torch.histogramdd: dimension 0's range [") if range is None else []


def _finite(values: Any, text: str) -> list[Check]:
    return [Check(values, ~jnp.isfinite(values), RuntimeError, text + "...] is not finite")]


def _multinomial(self: Any, **_: Any) -> list[Check]:
    text = "probability tensor contains either `inf`, `nan` or element < 0"
    sums = jnp.sum(self, axis=-1)
    none = "invalid multinomial distribution (sum of probabilities <= 0)"
    return [
        Check(self, ~(jnp.isfinite(self) & (self >= 0)), RuntimeError, text),
        Check(sums, sums <= 0, RuntimeError, none),
    ]


def _divide(self: Any, other: Any, **_: Any) -> list[Check]:
    divisor = jnp.asarray(other)
    integers = all(jnp.issubdtype(jnp.asarray(x).dtype, jnp.integer) for x in (self, divisor))
    return [Check(divisor, divisor == 0, RuntimeError, "ZeroDivisionError")] if integers else []


def _divide_with_mode(self: Any, other: Any, rounding_mode: str | None = None) -> list[Check]:
    return _divide(self, other) if rounding_mode is not None else []


_OF_OPERATORS: dict[str, Rule] = {
    "index.Tensor": _index,
    "index_put _index_put_impl": _index_put,
    "masked_scatter": _masked_scatter,
    "repeat_interleave.Tensor": _repeat_interleave,
    "index_select": lambda self, dim, index: [_within(index, _size(self, dim), *_OUT_OF_RANGE)],
    "embedding": lambda weight, indices, **_: [_within(indices, weight.shape[0], *_OUT_OF_RANGE)],
    "gather scatter.src scatter.value scatter_add": _along(RuntimeError),
    "index_add": _index_add,
    "index_reduce": lambda self, dim, index, *_, **__: [_within(index, _size(self, dim), *_OUT_OF_RANGE)],
    "_embedding_bag _embedding_bag_forward_only": _embedding_bag,
    "scatter.reduce scatter.value_reduce scatter_reduce.two": _along(RuntimeError),
    "index_fill.int_Scalar index_fill.int_Tensor": _along(IndexError, negative=True),
    "index_copy": _along(IndexError, "index_copy_(): "),
    "take put": _take,
    "nll_loss_forward nll_loss2d_forward": _nll_loss,
    "multi_margin_loss": _margin_loss,
    "multilabel_margin_loss_forward": _labels,
    "max_unpool2d max_unpool3d": _max_unpool,
    "searchsorted.Tensor searchsorted.Scalar": _searchsorted,
    "segment_reduce": _segment_reduce,
    "lu_unpack": _lu_unpack,
    "_ctc_loss.Tensor": _ctc_loss,
    "bernoulli": lambda self, **_: [_between_0_and_1(self, _P_IN)],
    "bernoulli.Tensor": lambda p, **_: [_between_0_and_1(p, _P_IN)],
    "binary_cross_entropy": _binary_cross_entropy,
    "poisson": _no_negative("self", "invalid Poisson rate, expected rate to be non-negative"),
    "normal.Tensor_Tensor normal.float_Tensor": _no_negative("std", "normal expects all elements of std >= 0.0"),
    "histc": _histc,
    "histogram.bin_ct": _histogram,
    "_linalg_svd": _matrices(
        "linalg.svd",
        "The algorithm failed to converge because the input matrix contained non-finite values.",
        lambda x: ~jnp.isfinite(x),
    ),
    "cholesky": _matrices(
        "cholesky",
        "The factorization could not be completed because the input is not positive-definite",
        lambda x: jnp.isnan(jnp.linalg.cholesky(x)),
    ),
    "multinomial": _multinomial,
    "floor_divide floor_divide.Scalar fmod.Tensor fmod.Scalar": _divide,
    "remainder.Tensor remainder.Scalar remainder.Scalar_Tensor": _divide,
    "div.Tensor_mode div.Scalar_mode": _divide_with_mode,
}
_RULES = {name: rule for names, rule in _OF_OPERATORS.items() for name in overloads(names)}
_RULES["xla.class_numbers.default"] = _classes  # one_hot
