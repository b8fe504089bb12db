"""Record a traced function as one operation in each pass, or as the body of a loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch

from xlaprof.runtime.dynamo.sketch import COMPUTED, CONSTANT

from .pure import Pass, Traced, refuse_second_gradients
from .seeded import record


def call(traced: Traced, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The function's results. Gradients pass where it was traced with them."""
    return _apply(traced, *tensors, *traced.captured)


def repeat(traced: Traced, times: torch.Tensor, carry: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """``carry = function(*carry)``, ``times`` times: a loop on the device.

    ``times`` is on the device too, and is not read. No gradient passes.
    """
    first, many = traced.forward, len(carry)

    def loop(arrays: Sequence[Any], bits: Any) -> list[Any]:
        count, *state = arrays[: many + 1]

        def body(i: Any, state: list[Any]) -> list[Any]:
            seeds = bits.at[:, 1].add(i.astype(jnp.uint32))  # other random numbers in each pass
            outs: list[Any] = first([*state, *arrays[many + 1 :]], seeds)
            return outs[:many]

        last: list[Any] = jax.lax.fori_loop(jnp.zeros_like(count), count, body, state)
        return last

    pool = [times, *carry, *traced.captured, *first.constants]
    with torch.no_grad():
        return record("repeat", (first.key, many), loop, pool, (first.rows, 2))


def evaluated(name: str, graph: Pass, pool: Sequence[torch.Tensor]) -> list[Any]:
    """Results of ``graph`` over its arguments ``pool``. A result that is an argument is that very tensor."""
    made = [i for i, out in enumerate(graph.outputs) if out.kind == COMPUTED]
    tensors = [*pool, *graph.constants]

    def function(arrays: Sequence[Any], bits: Any) -> list[Any]:
        outs = graph(arrays, bits)
        return [outs[i] for i in made]

    computed = iter(record(name, graph.key, function, tensors, (graph.rows, 2)) if made else ())
    return [
        next(computed) if out.kind == COMPUTED else None if out.kind == CONSTANT else tensors[out.at]
        for out in graph.outputs
    ]


class _Call(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, traced: Traced, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outs = evaluated("pure", traced.forward, tensors)
        results = outs[: traced.results]
        ctx.traced = traced
        ctx.save_for_backward(*outs[traced.results :])
        ctx.mark_non_differentiable(
            *(result for result, wanted in zip(results, traced.differentiable, strict=True) if not wanted)
        )
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        refuse_second_gradients("assume_pure")
        traced: Traced = ctx.traced
        assert traced.backward is not None
        tangents = [gradient for gradient, wanted in zip(gradients, traced.differentiable, strict=True) if wanted]
        return (None, *evaluated("pure_backward", traced.backward, [*ctx.saved_tensors, *tangents]))


_apply: Callable[..., tuple[torch.Tensor, ...]] = _Call.apply
