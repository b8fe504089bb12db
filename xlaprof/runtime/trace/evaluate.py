"""Calls a lowering, and checks its results against the shapes and dtypes that PyTorch gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp

from xlaprof.runtime import metrics
from xlaprof.runtime.lowering.registry import JAX_DTYPE, Aval, Ctx, Unsupported

from .self_writes import self_writes
from .trie import Packed, Ref, leaves

if TYPE_CHECKING:
    from .ops import Op
    from .trie import Node


#: operator -> what its lowering did wrong, last: it failed, or gave a result of another shape than PyTorch
MISTAKES: dict[str, str] = {}


class WrongResult(Exception):
    """A lowering gave other results than PyTorch says there are."""


class Evaluator:
    """Evaluates recorded operations over jax values.

    ``values``: slot -> array. ``floats`` (f64[n]), ``ints`` (s64[n]) and ``seeds`` (u32[n,2]) are the program's packed
    scalars and the threefry keys of its random operations.
    """

    def __init__(
        self, values: dict[int, Any], floats: Any, ints: Any, seeds: Any, numbering: dict[Packed, int] | None = None
    ) -> None:
        self.values = values
        self._numbering = numbering  # of the packed scalars; None: as the tape numbers them
        self._packed = {"f": floats, "i": ints}
        self._seeds = seeds
        self._scalars: dict[Packed, Any] = {}
        self._weak: set[int] = set()
        self._self_writes: set[Node] = set()

    def run(
        self,
        op: Op,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outs: tuple[Aval | None, ...],
        seed: int,
        *,
        writes_itself: bool = False,
    ) -> tuple[jax.Array, ...]:
        """Results of ``op`` over template arguments, except those that are ``None`` in ``outs``.

        ``seed`` is the row of its threefry key, if it is random.

        Raises :class:`WrongResult` unless the results have the shapes of ``outs``.
        """
        assert op.lowering is not None
        given, named = self.read(args, kwargs)
        key = jax.random.wrap_key_data(self._seeds[seed], impl="threefry2x32") if op.random else None
        # A lowering knows from its arguments which outputs are left out, and does not read their avals.
        ctx = Ctx(cast(tuple[Aval, ...], outs), key, frozenset(self._weak), writes_itself)
        result = op.lowering(ctx, *given, **named)
        results = result if isinstance(result, (tuple, list)) else (result,)
        if len(results) != len(outs):
            raise WrongResult(f"{len(results)} results for {len(outs)} outputs")
        checked = []
        for value, out in zip(results, outs, strict=True):
            if out is None:
                continue
            array = jnp.asarray(value)
            if array.shape != out.shape:
                raise WrongResult(f"result of shape {array.shape}, PyTorch says {out.shape}")
            array = array.astype(JAX_DTYPE[out.dtype])
            # A scalar returned unchanged (``full``) is a tensor from here on: a copy, which is not in the weak set.
            checked.append(jnp.array(array, copy=True) if id(array) in self._weak else array)
        return tuple(checked)

    def call(self, node: Node, seed: int) -> tuple[jax.Array, ...]:
        """Results of a recorded operation, except those that are left out."""
        assert node.op is not None
        itself = node in self._self_writes
        if node.call is None or itself:
            avals = tuple(out and out.aval for out in node.returns)
            return self.run(node.op, node.args, node.kwargs, avals, seed, writes_itself=itself)
        slots, packed = leaves(node.args, node.kwargs)
        seeds = self._seeds[seed : seed + 1] if node.op.random else None
        return node.call.function([self.values[slot] for slot in slots], [self._read(p) for p in packed], seeds)

    def evaluate(self, nodes: Iterable[Node], call: Callable[[Node, int], tuple[jax.Array, ...]] | None = None) -> None:
        """Add the results of ``nodes``, in their order, to the values; ``call`` stands in for :meth:`call`."""
        call = call or self.call
        seed = 0
        nodes = tuple(nodes)
        self._self_writes = self_writes(nodes)
        for node in nodes:
            assert node.op is not None
            results = call(node, seed)
            seed += int(node.op.random)
            self.values.update((out.slot, value) for out, value in zip(node.outs, results, strict=True))

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The values of template arguments."""
        return tuple(self._read(a) for a in args), {k: self._read(v) for k, v in kwargs.items()}

    def _read(self, template: Any) -> Any:
        kind = type(template)
        if kind is Ref:
            return self.values[template.slot]
        if kind is Packed:
            value = self._scalars.get(template)
            if value is None:
                index = template.index if self._numbering is None else self._numbering[template]
                packed = self._packed[template.kind]  # an array, or arrays of one number each
                one = isinstance(packed, tuple)
                value = packed[index] if one else jax.lax.index_in_dim(packed, index, keepdims=False)
                self._scalars[template] = value
                self._weak.add(id(value))
            return value
        if kind is tuple:
            return tuple(self._read(t) for t in template)
        return template


#: jax's view of a program's packed scalar, and of a random operation's row of seeds
_SCALAR = {"f": jax.ShapeDtypeStruct((), jnp.float64), "i": jax.ShapeDtypeStruct((), jnp.int64)}
_SEEDS = jax.ShapeDtypeStruct((1, 2), jnp.uint32)


class Call:
    """A lowering over arguments of one kind (shapes, dtypes, constants), traced by jax once.

    jax keeps the trace: a repeated layer, or a graph compiled again with other outputs, is not traced again. ``error``
    says why the lowering does not cover them (:class:`Unsupported`), or what it did wrong. Such an operation could not
    be compiled at the barrier, so it is decomposed or computed on the CPU instead: right, but many times as slow to
    record. So a mistake is counted (``FailedLowering``) and kept in :data:`MISTAKES`, which tests want empty.
    """

    __slots__ = ("error", "function")

    def __init__(
        self,
        op: Op,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        arrays: list[jax.ShapeDtypeStruct],
        outs: tuple[Aval | None, ...],
    ) -> None:
        slots, packed = leaves(args, kwargs)

        def apply(arrays: list[Any], scalars: list[Any], seeds: Any) -> tuple[jax.Array, ...]:
            evaluator = Evaluator(dict(zip(slots, arrays, strict=True)), None, None, seeds)
            evaluator._scalars = dict(zip(packed, scalars, strict=True))
            evaluator._weak = {id(scalar) for scalar in scalars}
            return evaluator.run(op, args, kwargs, outs, 0)

        self.function: Callable[..., tuple[jax.Array, ...]] = jax.jit(apply, inline=True)
        self.error: str | None = None
        try:
            with jax.enable_x64(True):
                jax.eval_shape(self.function, arrays, [_SCALAR[p.kind] for p in packed], _SEEDS if op.random else None)
        except Unsupported as error:  # only its text is kept: its traceback would hold the user's tensors
            self.error = str(error)
        except Exception as error:
            self.error = MISTAKES[op.name] = f"{type(error).__name__}: {error}"
            metrics.count("FailedLowering")
