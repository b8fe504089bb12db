"""Gradients of whole parameters become gradients of shards: averaged over the ranks, each rank getting its part."""

from __future__ import annotations

from typing import Any

import torch

from xlaprof.runtime.distributed import collectives
from xlaprof.runtime.tape import computations

from .options import Options
from .whole import Whole


class Reducing:
    """The reductions of one wrapper. Gradients wait for others until there are ``bucket_bytes`` of them."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._waiting: list[tuple[Whole, torch.Tensor]] = []
        # Divided in two steps, so that sums of float16 over many ranks neither overflow nor vanish.
        self.before = 1.0
        size = options.world_size
        while size % self.before == 0 and size / self.before > self.before:
            self.before *= 2
        self.after = size / self.before

    @torch.no_grad()
    def take(self, whole: Whole) -> None:
        """Take the gradient of the whole parameter, and reduce it, now or with the next ones."""
        grad: Any = whole.param.grad
        if grad is None:
            return
        whole.param.grad = None
        if self.before > 1:
            grad = grad / self.before
        grad = whole.split(grad)
        if self._options.fp32_reduce_scatter:
            grad = grad.float()
        if self._options.barrier_in_backward:
            (grad,) = computations.optimization_barrier([grad])
        self._waiting.append((whole, grad))
        if sum(g.numel() * g.element_size() for _, g in self._waiting) > self._options.bucket_bytes:
            self.flush()

    @torch.no_grad()
    def flush(self) -> None:
        """Reduce what waits."""
        if not self._waiting:
            return
        options, waiting, self._waiting = self._options, self._waiting, []
        reduced = collectives.reduce_scatter(
            "sum", [grad for _, grad in waiting], 1.0, 0, options.world_size, options.sharding_groups
        )
        for (whole, _), part in zip(waiting, reduced, strict=True):
            grad = part.float()
            if self.after > 1:
                grad = grad / self.after
            if whole.shard.grad is None:
                whole.shard.grad = grad
            else:
                whole.shard.grad += grad
