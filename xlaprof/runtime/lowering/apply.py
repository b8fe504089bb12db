"""Calling a lowering: arguments brought to it, results held to what PyTorch says they are."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp

from xlaprof.runtime.trie import Packed, Ref

from .registry import JAX_DTYPE, Aval, Ctx, Unsupported

if TYPE_CHECKING:
    from xlaprof.runtime.ops import Op


class Evaluator:
    """Evaluates recorded operations over jax values.

    ``values``: slot -> array. ``floats`` (f64[n]), ``ints`` (s64[n]) and ``seeds`` (u32[n,2]) are the program's packed
    scalars and the threefry keys of its random operations.
    """

    def __init__(
        self, values: dict[int, Any], floats: Any, ints: Any, seeds: Any, numbering: dict[Packed, int] | None = None
    ) -> None:
        self.values = values
        self._numbering = numbering  # of the packed scalars; None: their own
        self._packed = {"f": floats, "i": ints}
        self._seeds = seeds
        self._scalars: dict[Packed, Any] = {}
        self._weak: set[int] = set()

    def run(
        self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], outs: tuple[Aval | None, ...], seed: int
    ) -> tuple[jax.Array, ...]:
        """Results of ``op`` over template arguments, without those that ``outs`` leaves out (``None``).

        ``seed`` is the row of its threefry key, if it is random.

        Raises :class:`Unsupported` unless the results have the shapes of ``outs``.
        """
        assert op.lowering is not None
        given = [self._read(a) for a in args]
        named = {k: self._read(v) for k, v in kwargs.items()}
        key = jax.random.wrap_key_data(self._seeds[seed], impl="threefry2x32") if op.random else None
        # A lowering knows from its own arguments which outputs are left out, and looks at none of those.
        result = op.lowering(Ctx(cast(tuple[Aval, ...], outs), key, frozenset(self._weak)), *given, **named)
        results = result if isinstance(result, (tuple, list)) else (result,)
        if len(results) != len(outs):
            raise Unsupported(f"{op.name}: {len(results)} results for {len(outs)} outputs")
        checked = []
        for value, out in zip(results, outs, strict=True):
            if out is None:
                continue
            array = jnp.asarray(value)
            if array.shape != out.shape:
                raise Unsupported(f"{op.name}: result of shape {array.shape}, PyTorch says {out.shape}")
            checked.append(array.astype(JAX_DTYPE[out.dtype]))
        return tuple(checked)

    def _read(self, template: Any) -> Any:
        kind = type(template)
        if kind is Ref:
            return self.values[template.slot]
        if kind is Packed:
            value = self._scalars.get(template)
            if value is None:
                index = template.index if self._numbering is None else self._numbering[template]
                value = jax.lax.index_in_dim(self._packed[template.kind], index, keepdims=False)
                self._scalars[template] = value
                self._weak.add(id(value))
            return value
        if kind is tuple:
            return tuple(self._read(t) for t in template)
        return template


_verified: dict[Hashable, Exception | None] = {}


def verify(signature: Hashable, trace: Callable[..., Any], *avals: Any) -> Exception | None:
    """Does a lowering cover these arguments? Traced once per ``signature``, without compiling anything.

    Returns what it raised, or ``None``. Any exception counts: a lowering that fails while it is traced cannot be
    compiled, and the operation is to take another road (decomposition, CPU) instead of failing at the barrier.
    """
    if signature in _verified:
        return _verified[signature]
    verdict: Exception | None = None
    try:
        with jax.enable_x64(True):
            jax.eval_shape(trace, *avals)
    except Exception as error:  # the verdict is returned and acted on
        verdict = error
    _verified[signature] = verdict
    return verdict
