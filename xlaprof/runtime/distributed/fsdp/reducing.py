"""Gradients of full parameters become gradients of shards: averaged over the ranks, one part for each rank."""

from __future__ import annotations

from typing import Any

import torch

from xlaprof.runtime.distributed import collectives
from xlaprof.runtime.tape import computations

from .full_parameter import FullParameter, Options


class Reducing:
    """The reductions of one wrapper. Gradients wait for others until there are ``bucket_bytes`` of them."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._waiting: list[tuple[FullParameter, torch.Tensor]] = []
        # Divided in two steps, so that sums of float16 over many ranks neither overflow nor vanish.
        self.before = 1.0
        size = options.world_size
        while size % self.before == 0 and size / self.before > self.before:
            self.before *= 2
        self.after = size / self.before

    @torch.no_grad()
    def take(self, full: FullParameter) -> None:
        """Take the gradient of the full parameter, and reduce it, now or with the next ones."""
        grad: Any = full.param.grad
        if grad is None:
            return
        full.param.grad = None
        if self.before > 1:
            grad = grad / self.before
        grad = full.split(grad)
        if self._options.fp32_reduce_scatter:
            grad = grad.float()
        if self._options.barrier_in_backward:
            (grad,) = computations.optimization_barrier([grad])
        self._waiting.append((full, grad))
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
        for (full, _), part in zip(waiting, reduced, strict=True):
            grad = part.float()
            if self.after > 1:
                grad = grad / self.after
            if full.shard.grad is None:
                full.shard.grad = grad
            else:
                full.shard.grad += grad
