"""``torch_xla.experimental.scan``: a function applied along the first dimension of tensors, with a state carried on."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from xlaprof.runtime.functional.pure import Like, Untraceable, modes, trace, tracing
from xlaprof.runtime.functional.scan import Loop
from xlaprof.runtime.functional.traced_op import evaluated
from xlaprof.runtime.trace.tensor import XLATensor

Step = Callable[[Any, Any], tuple[Any, Any]]

#: loops of functions that the user declared pure; ``None`` for those that cannot be traced
_SCAN_COMPUTATION_CACHE: OrderedDict[Any, _Rolled | None] = OrderedDict()
_LIMIT = 256
_lock = threading.Lock()


class Changed(ValueError):
    """A function returned another carry than it was given."""


def scan(fn: Step, init: Any, xs: Any, partition_fn: Any = None, is_fn_pure: bool = False) -> tuple[Any, Any]:
    """``(carry, ys)``: ``carry, y = fn(carry, x)`` for each ``x`` along the first dimension of ``xs``, ``ys`` stacked.

    ``init``, ``xs`` and the results of ``fn`` are pytrees of tensors on ``xla``; leaves of ``y`` may be ``None``. The
    carry keeps its structure, shapes and dtypes. Gradients pass to ``init``, ``xs`` and other tensors that ``fn``
    reads. Writes of ``fn`` to its arguments have no effect outside.

    ``fn`` is traced at each call of ``scan``, or only once with ``is_fn_pure=True``, and becomes the body of one XLA
    loop in each pass: compile time does not grow with the length. ``partition_fn`` decides what the backward pass
    computes again, as ``functorch.compile.min_cut_rematerialization_partition`` does. A function that cannot be traced
    (it reads values, writes to other tensors, runs collectives), or runs under SPMD, is called for each element, all in
    one graph.

    Raises ``ValueError`` where ``fn`` is not callable, ``xs`` has no tensors or tensors of different lengths, or the
    carry changes.
    """
    if not callable(fn):
        raise ValueError(f"scan calls fn for the elements of xs: it has to be callable, got {fn!r}")
    length = _length(xs)
    _described(init, "init")
    loop = rolled(fn, init, xs, length, partition_fn, is_fn_pure)
    return _unrolled(fn, init, xs, length) if loop is None else loop(init, xs)


def _length(xs: Any) -> int:
    leaves = tree_leaves(xs)
    lengths = []
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            raise ValueError(f"scan takes pytrees of tensors, got {leaf!r} in xs")
        if leaf.ndim == 0:
            raise ValueError("scan goes along the first dimension of xs, and a tensor in it has none: unsqueeze it")
        lengths.append(len(leaf))
    if not leaves:
        raise ValueError(f"scan goes along the first dimension of xs, and there is no tensor in it: {xs!r}")
    if len(set(lengths)) > 1:
        raise ValueError(f"the tensors of xs have to be of one length in their first dimension, got {lengths}")
    return lengths[0]


def _described(carry: Any, name: str) -> Any:
    """Structure, shapes and dtypes."""
    leaves, spec = tree_flatten(carry)
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            raise ValueError(f"scan takes pytrees of tensors, got {leaf!r} in {name}")
    return spec, [(tuple(leaf.shape), leaf.dtype) for leaf in leaves]


def _checked(result: Any, expected: Any) -> tuple[Any, Any]:
    """The result of ``fn``, checked: a pair whose carry has the shapes and dtypes of the previous one."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        kind = "a tensor" if isinstance(result, torch.Tensor) else repr(result)
        raise ValueError(f"scan wants fn to return a pair (carry, y), got {kind}")
    found = _described(result[0], "the carry that fn returns")
    if found != expected:
        raise Changed(f"scan hands fn the carry that it returned: it has to stay {expected[1]}, got {found[1]}")
    for leaf in tree_leaves(result[1]):
        if leaf is not None and not isinstance(leaf, torch.Tensor):
            raise ValueError(f"scan stacks what fn returns second: tensors or None, got {leaf!r}")
    return result[0], result[1]


class _Rolled:
    """A function as the body of a loop."""

    def __init__(self, fn: Step, init: Any, xs: Any, length: int, partition_fn: Any) -> None:
        carry, self.carry_spec = tree_flatten(init)
        slices, self.x_spec = tree_flatten(xs)
        expected = _described(init, "init")
        first: Any = (carry + slices)[0]
        self.y_spec: Any = None
        self.present: list[bool] = []

        def flat(tensors: list[Any]) -> list[Any]:
            given = tree_unflatten(tensors[: len(carry)], self.carry_spec)
            x = tree_unflatten(tensors[len(carry) :], self.x_spec)
            onward, y = _checked(fn(given, x), expected)
            leaves, self.y_spec = tree_flatten(y)
            self.present = [leaf is not None for leaf in leaves]
            return [*tree_leaves(onward), *(leaf for leaf in leaves if leaf is not None)]

        # The whole carry has a gradient: each element's is computed from the next one's.
        like = [Like(tuple(t.shape), t.dtype, t.is_floating_point() or t.is_complex(), t.requires_grad) for t in carry]
        like += [Like(tuple(t.shape[1:]), t.dtype, t.requires_grad, t.requires_grad) for t in slices]
        traced = trace(flat, like, first._storage.tape, partition_fn)
        self.loop = Loop(traced, len(carry), len(slices), length)

    @property
    def writes_to_xs(self) -> bool:
        """Does ``fn`` write to the slices it is given?"""
        return any(self.loop.traced.written[self.loop.carried :])

    def __call__(self, init: Any, xs: Any) -> tuple[Any, Any]:
        carry = tree_leaves(init)
        return self.results(self.loop(carry, tree_leaves(xs)))

    def results(self, leaves: Any) -> tuple[Any, Any]:
        """``(carry, y)``, of the tensors that a pass computed."""
        ys = iter(leaves[self.loop.carried :])
        y = tree_unflatten([next(ys) if there else None for there in self.present], self.y_spec)
        return tree_unflatten(leaves[: self.loop.carried], self.carry_spec), y


def rolled(fn: Step, init: Any, xs: Any, length: int, partition_fn: Any, pure: bool) -> _Rolled | None:
    """A function that computes ``scan(fn, init, xs)`` as one loop; ``None`` where each pass must call ``fn``."""
    leaves, spec = tree_flatten((init, xs))
    tapes: set[Any] = {leaf._storage.tape if isinstance(leaf, XLATensor) else None for leaf in leaves}
    if tracing() or len(tapes) > 1 or None in tapes or any(tape.partition is not None for tape in tapes):
        return None
    kinds = tuple((tuple(leaf.shape), leaf.dtype, leaf.requires_grad) for leaf in leaves)
    key = (fn, partition_fn, spec, kinds, *tapes, *modes()) if pure else None
    with _lock:
        if pure and key in _SCAN_COMPUTATION_CACHE:
            _SCAN_COMPUTATION_CACHE.move_to_end(key)
            return _SCAN_COMPUTATION_CACHE[key]
    made: _Rolled | None
    try:
        made = _Rolled(fn, init, xs, length, partition_fn)
    except Untraceable:
        made = None
    if pure:
        with _lock:
            _SCAN_COMPUTATION_CACHE[key] = made
            if len(_SCAN_COMPUTATION_CACHE) > _LIMIT:
                _SCAN_COMPUTATION_CACHE.popitem(last=False)
    return made


def value_and_grad_partitioned(
    fn: Step, init: Any, xs: Any, partition_fn: Any = None, is_fn_pure: bool = True
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The two passes of one step of ``scan(fn, init, xs)``, as functions of tensors that no gradient passes through.

    ``forward(carry, x)`` returns ``(new_carry, (y, kept))``, where ``kept`` are tensors that the backward pass reads;
    ``backward(grad_of_new_carry, (grad_of_y, kept))`` returns ``(grad_of_carry, grad_of_x)``, ``None`` where there is
    none. ``is_fn_pure`` has no effect. Raises ``RuntimeError`` where ``fn`` cannot be traced, or no leaf of ``init`` or
    ``xs`` asks for a gradient.
    """
    length = _length(xs)
    try:
        step = _Rolled(fn, init, xs, length, partition_fn)
    except Untraceable as error:
        raise RuntimeError(f"fn cannot be traced: {error}") from error
    traced = step.loop.traced
    backward_pass = traced.backward
    if backward_pass is None:
        raise RuntimeError("no gradient passes: no leaf of init or xs has requires_grad=True")

    def forward(carry: Any, x: Any) -> tuple[Any, tuple[Any, tuple[torch.Tensor, ...]]]:
        with torch.no_grad():
            outs = evaluated("scan_step", traced.forward, [*tree_leaves(carry), *tree_leaves(x), *traced.captured])
        onward, y = step.results(outs[: traced.results])
        return onward, (y, tuple(outs[traced.results :]))

    def backward(grad_carry: Any, rest: tuple[Any, tuple[torch.Tensor, ...]]) -> tuple[Any, Any]:
        grad_y, kept = rest
        given = [*tree_leaves(grad_carry), *(leaf for leaf in tree_leaves(grad_y) if leaf is not None)]
        tangents = [tangent for tangent, wanted in zip(given, traced.differentiable, strict=True) if wanted]
        with torch.no_grad():
            outs = evaluated("scan_step_backward", backward_pass, [*kept, *tangents])
        carried, sliced = step.loop.carried, step.loop.sliced
        grad_x = tree_unflatten(outs[carried : carried + sliced], step.x_spec)
        return tree_unflatten(outs[:carried], step.carry_spec), grad_x

    return forward, backward


def tree_flatten_none(pytree: Any) -> tuple[list[Any], Callable[[Any], Any]]:
    """The leaves of ``pytree`` that are not ``None``, and a function that puts others in their place."""
    leaves, spec = tree_flatten(pytree)

    def unflatten(flat: Any) -> Any:
        others = iter(flat)
        return tree_unflatten([None if leaf is None else next(others) for leaf in leaves], spec)

    return [leaf for leaf in leaves if leaf is not None], unflatten


def _unrolled(fn: Step, init: Any, xs: Any, length: int) -> tuple[Any, Any]:
    if length == 0:
        raise ValueError("scan cannot know what fn returns without calling it, and xs is empty in its first dimension")
    expected = _described(init, "init")
    carry, ys = init, []
    spec: Any = None
    for i in range(length):
        # ``fn`` may write in place to these copies; XLA eliminates unneeded ones.
        x = tree_map(lambda leaf, i=i: leaf[i].clone(), xs)
        carry, y = _checked(fn(tree_map(torch.clone, carry), x), expected)
        leaves, spec = tree_flatten(y)
        ys.append([None if leaf is None else leaf.clone() for leaf in leaves])
    stacked = [None if row[0] is None else torch.stack(row) for row in zip(*ys, strict=True)]
    return carry, tree_unflatten(stacked, spec)
