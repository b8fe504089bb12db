"""New edges of the trie: the only place where recording an operation costs more than a lookup.

A new edge asks PyTorch's meta kernels for the result's shape, checks that the lowering covers the arguments, and takes
the user's stack. Steady state never comes here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import torch

from . import explain, source
from .cells import Sig
from .clock import clock
from .infer import NoMeta, infer
from .lowering.apply import Evaluator, verify
from .lowering.registry import JAX_DTYPE, Aval
from .ops import TENSOR, TENSORS
from .trie import Const, Node, Packed, Ref, Spec

if TYPE_CHECKING:
    from .ops import Op
    from .tape import Tape


class Pseudo:
    """An operation of the tape's own, with no ATen overload behind it."""

    def __init__(self, name: str, lowering: Any = None) -> None:
        self.name = self.aten = name
        self.lowering = lowering
        self.random = False
        self.func = None

    def __repr__(self) -> str:
        return self.name


INPUT: Any = Pseudo("xlaprof.input")
EMPTY: Any = Pseudo("xlaprof.empty", lambda ctx: jnp.zeros(ctx.out[0].shape, ctx.out[0].jax))


class Unlowered(Exception):
    """No lowering covers these arguments."""


def grow(
    tape: Tape,
    op: Op,
    key: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    spec: Spec | None = None,
) -> Node:
    """Add the edge ``key`` to the tape's current node and return the new node.

    ``args`` and ``kwargs`` are the user's (tensors, numbers), and ``key`` is ``(op, a key per argument, then a pair
    (name, key) per keyword)``. With ``spec``, what the result is, they are a template made earlier. Raises
    what PyTorch raises for bad arguments, and :class:`Unlowered` when the operation has to take another road.
    """
    parent = tape.node
    node = Node(parent, key, op)
    specs: list[Spec | None]
    if spec is not None:
        node.args, node.kwargs, specs = args, kwargs, [spec]
    else:
        try:
            specs = infer(op, args, kwargs)
        except NoMeta as error:
            raise Unlowered(str(error)) from error
        node.args, node.kwargs = _template(op, key, args, kwargs)
        _check_lowering(op, node, specs, args, kwargs)
    node.set_outs(specs)
    node.frames, node.module = source.here()
    if tape.divergence is None:
        tape.divergence = explain.Divergence(parent, node)
    parent.edges[key] = node
    tape.nodes += 1
    clock.work()
    return node


def _template(
    op: Op, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with values on the tape as :class:`Ref`, scalars as :class:`Packed` or plain numbers."""
    n = len(args)
    keys = key[1 : 1 + n]
    return (
        tuple(_unkey(kind, k) for kind, k in zip(op.kinds, keys, strict=False)),
        {name: _unkey(op.kwarg_kinds[name], k) for name, k in key[1 + n :]},
    )


def _unkey(kind: str, key: Any) -> Any:
    if type(key) is Const:
        return key.value
    if kind == TENSOR and type(key) is int:
        return Ref(key)
    if kind == TENSORS and key is not None:
        return tuple(_unkey(TENSOR, k) for k in key)
    return key


def _check_lowering(
    op: Op,
    node: Node,
    specs: list[Spec | None],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    if op.lowering is None:
        raise Unlowered(f"{op.name} has no lowering")
    sigs: dict[int, Sig] = {}
    for template, value in [*zip(node.args, args, strict=False), *((node.kwargs[k], kwargs[k]) for k in node.kwargs)]:
        _collect(template, value, sigs)
    slots = list(sigs)
    names = {slot: i for i, slot in enumerate(slots)}
    described = repr((_rename(node.args, names), sorted(_rename(node.kwargs, names).items())))
    signature = (op.name, described, tuple(sigs.values()), tuple(s and s.sig for s in specs), torch.get_default_dtype())
    outs = tuple(None if s is None else Aval(s.sig.shape, s.sig.dtype) for s in specs)

    def trace(arrays: list[jax.Array], floats: jax.Array, ints: jax.Array, seeds: jax.Array) -> Any:
        values = dict(zip(slots, arrays, strict=True))
        return Evaluator(values, floats, ints, seeds).run(op, node.args, node.kwargs, outs, 0)

    f = max((p.index for p in _packed(node, "f")), default=-1) + 1
    i = max((p.index for p in _packed(node, "i")), default=-1) + 1
    error = verify(
        signature,
        trace,
        [jax.ShapeDtypeStruct(s.shape, JAX_DTYPE[s.dtype]) for s in sigs.values()],
        jax.ShapeDtypeStruct((f,), jnp.float64),
        jax.ShapeDtypeStruct((i,), jnp.int64),
        jax.ShapeDtypeStruct((1, 2), jnp.uint32),
    )
    if error is not None:
        raise Unlowered(f"{op.name}: {error}") from error


def _collect(template: Any, value: Any, sigs: dict[int, Sig]) -> None:
    if type(template) is Ref:
        sigs[template.slot] = value._cell.sig
    elif type(template) is tuple and isinstance(value, (list, tuple)):
        for t, v in zip(template, value, strict=True):
            _collect(t, v, sigs)


def _rename(template: Any, names: dict[int, int]) -> Any:
    """``template`` with slots renumbered and packed scalars reduced to their kind."""
    if type(template) is Ref:
        return f"%{names[template.slot]}"
    if type(template) is Packed:
        return f"<{template.kind}>"
    if type(template) is tuple:
        return tuple(_rename(t, names) for t in template)
    if type(template) is dict:
        return {k: _rename(v, names) for k, v in template.items()}
    return template


def _packed(node: Node, kind: str) -> list[Packed]:
    found = [a for a in (*node.args, *node.kwargs.values()) if type(a) is Packed]
    for group in (*node.args, *node.kwargs.values()):
        if type(group) is tuple:
            found += [a for a in group if type(a) is Packed]
    return [p for p in found if p.kind == kind]
