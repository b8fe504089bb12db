"""A loop along the first dimension of tensors as one recorded operation: XLA's while, in either direction."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import torch

from xlaprof.runtime.dynamo.sketch import COMPUTED, CONSTANT

from .pure import Traced, refuse_second_gradients
from .seeded import record


@dataclass(frozen=True)
class Loop:
    """``traced`` as the body of a loop: its first ``carried`` arguments are the carry, the next ``sliced`` are slices.

    Its results are the carry's new values, followed by others, which are stacked.
    """

    traced: Traced
    carried: int
    sliced: int
    length: int

    def __call__(self, carry: Sequence[torch.Tensor], xs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The last carry, then the stacked results. ``xs`` have ``length`` as their first size."""
        return _apply(self, *carry, *xs, *self.traced.captured)

    @functools.cached_property
    def kept(self) -> tuple[Any, ...]:
        """Where the backward pass finds each value it reads: ``None`` if stacked, else the number of an argument."""
        return tuple(
            None if out.kind == COMPUTED or out.at < self.carried else out.at
            for out in self.traced.forward.outputs[self.traced.results :]
        )

    def run(self, tensors: tuple[torch.Tensor, ...]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Results, and the values that the backward pass reads, without its own constants."""
        first, results = self.traced.forward, self.traced.results
        stacked = [i for i in range(results, len(first.outputs)) if self.kept[i - results] is None]
        pool = [*tensors, *first.constants]

        def loop(arrays: Sequence[Any], seeds: Any) -> list[Any]:
            split = self.carried + self.sliced

            def body(carry: Any, x: Any) -> Any:
                outs = first([*carry, *x[0], *arrays[split:]], x[1])
                return outs[: self.carried], [outs[i] for i in (*range(self.carried, results), *stacked)]

            start, slices = list(arrays[: self.carried]), list(arrays[self.carried : split])
            last, made = jax.lax.scan(body, start, (slices, seeds), length=self.length)
            return [*last, *made]

        outs = record("scan", (*self._shape, first.key), loop, pool, (self.length, first.rows, 2))
        made = iter(outs[results:])
        return outs[:results], [next(made) if at is None else pool[at] for at in self.kept]

    def run_back(self, kept: list[torch.Tensor], gradients: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        """Gradients of the carry at the start, of the slices (stacked), and of the captured tensors."""
        traced, last = self.traced, self.traced.backward
        assert last is not None
        wanted = traced.differentiable
        summed = range(self.carried + self.sliced, self.carried + self.sliced + len(traced.captured))
        has = [out.kind != CONSTANT for out in last.outputs]
        of_carry = [i for i in range(self.carried) if wanted[i] or has[i]]
        of_rest = [i for i in range(self.carried, traced.results) if wanted[i]]
        of_slices = [i for i in range(self.carried, self.carried + self.sliced) if has[i]]
        of_captured = [i for i in summed if has[i]]
        apart = [i for i, at in enumerate(self.kept) if at is None or at < self.carried + self.sliced]
        whole = [i for i in range(len(self.kept)) if i not in apart]
        totals = [torch.zeros_like(traced.captured[i - summed.start]) for i in of_captured]
        groups = [
            [gradients[i] for i in of_carry],
            totals,
            [kept[i] for i in apart],
            [gradients[i] for i in of_rest],
            [kept[i] for i in whole],
            list(last.constants),
        ]

        def loop(arrays: Sequence[Any], seeds: Any) -> list[Any]:
            left = iter(arrays)
            state, sums, slices, tangents, same, constants = ([next(left) for _ in group] for group in groups_like)

            def body(carry: Any, x: Any) -> Any:
                state, sums = carry
                read = dict(zip(whole, same, strict=True)) | dict(zip(apart, x[0], strict=True))
                given = dict(zip(of_carry, state, strict=True)) | dict(zip(of_rest, x[1], strict=True))
                pool = [read[i] for i in range(len(read))] + [given[i] for i in range(len(wanted)) if wanted[i]]
                outs = last([*pool, *constants], x[2])
                onward = [outs[i] if has[i] else jnp.zeros_like(old) for i, old in zip(of_carry, state, strict=True)]
                more = [total + outs[i] for i, total in zip(of_captured, sums, strict=True)]
                return (onward, more), [outs[i] for i in of_slices]

            start = (state, sums)
            (onward, sums), made = jax.lax.scan(body, start, (slices, tangents, seeds), self.length, reverse=True)
            return [*onward, *made, *sums]

        groups_like = [range(len(group)) for group in groups]
        pool = [tensor for group in groups for tensor in group]
        key = (*self._shape, last.key, self.kept, wanted)
        outs = record("scan_backward", key, loop, pool, (self.length, last.rows, 2))
        found: list[torch.Tensor | None] = [None] * (summed.stop)
        for i, gradient in zip((*of_carry, *of_slices, *of_captured), outs, strict=True):
            found[i] = gradient
        return found

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.carried, self.sliced, self.length, self.traced.results, len(self.traced.captured)


class _Loop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loop: Loop, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results, kept = loop.run(tensors)
        ctx.loop = loop
        ctx.save_for_backward(*kept)
        ctx.mark_non_differentiable(
            *(result for result, wanted in zip(results, loop.traced.differentiable, strict=True) if not wanted)
        )
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        refuse_second_gradients("scan")
        return (None, *ctx.loop.run_back(list(ctx.saved_tensors), gradients))


_apply: Callable[..., tuple[torch.Tensor, ...]] = _Loop.apply
