"""``torch_xla.core.functions``, customarily ``xf``: collectives with gradients, and compositions."""

from __future__ import annotations

from typing import Any

import torch

from xlaprof.runtime import distributed
from xlaprof.torch_xla.core import xla_model as xm


class AllReduce(torch.autograd.Function):
    """``xm.all_reduce`` with a gradient."""

    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, reduce_type: str, scale: float, groups: Any) -> torch.Tensor:
        ctx.reduce_type = reduce_type
        ctx.scale = scale
        output: torch.Tensor = distributed.all_reduce(reduce_type, input, scale=scale, groups=groups)
        ctx.save_for_backward(input, output)
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> Any:
        input, output = ctx.saved_tensors
        grad = grad_output * ctx.scale if ctx.scale != 1.0 else grad_output
        if ctx.reduce_type == xm.REDUCE_SUM:
            pass
        elif ctx.reduce_type == xm.REDUCE_MUL:
            grad = grad * torch.where(input != 0, output / input, torch.zeros_like(input))
        elif ctx.reduce_type in (xm.REDUCE_MIN, xm.REDUCE_MAX):
            grad = torch.where(input == output, grad, torch.zeros_like(grad))
        else:
            raise RuntimeError(f"Unsupported reduce type: {ctx.reduce_type}")
        return grad, None, None, None


class AllGather(torch.autograd.Function):
    """``xm.all_gather`` with a gradient."""

    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, dim: int) -> torch.Tensor:
        ctx.dim = dim
        gathered: torch.Tensor = distributed.all_gather(input, dim=dim)
        return gathered

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> Any:
        size = grad_output.size(ctx.dim) // distributed.world_size()
        return torch.narrow(grad_output.clone(), ctx.dim, distributed.global_ordinal() * size, size), None


def all_reduce(reduce_type: str, value: torch.Tensor, scale: float = 1.0, groups: Any = None) -> torch.Tensor:
    """``xm.all_reduce`` of one tensor; the gradient of each replica is that of its own summand."""
    return AllReduce.apply(value, reduce_type, scale, groups)  # type: ignore[no-any-return, no-untyped-call]


def all_gather(value: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """``xm.all_gather``; the gradient is that of this replica's part of the result."""
    return AllGather.apply(value, dim)  # type: ignore[no-any-return, no-untyped-call]


def nms(
    boxes: torch.Tensor,
    scores: torch.Tensor,
    score_threshold: torch.Tensor,
    iou_threshold: torch.Tensor,
    output_size: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Non-maximum suppression: the boxes to keep (``int32[output_size]``, zeros after the last) and how many there are.

    ``boxes`` is ``[N, 4]``, corners ``(y0, x0, y1, x1)``, ``scores`` ``[N]``; the thresholds are 0-dim. Nothing is
    read from the device.
    """
    order = scores.argsort(descending=True, stable=True)
    sorted_boxes = boxes[order]
    low, high = sorted_boxes[:, None, :2], sorted_boxes[:, None, 2:]
    sides = (torch.minimum(high, high.transpose(0, 1)) - torch.maximum(low, low.transpose(0, 1))).clamp(min=0)
    overlap = sides[..., 0] * sides[..., 1]
    area = (sorted_boxes[:, 2] - sorted_boxes[:, 0]) * (sorted_boxes[:, 3] - sorted_boxes[:, 1])
    rivals = (overlap / (area[:, None] + area[None, :] - overlap) > iou_threshold).triu(1)  # [better, worse]
    kept = scores[order] >= score_threshold
    for i in range(len(order)):
        kept = kept & ~(rivals[i] & kept[i])
    kept = kept & (kept.cumsum(0) <= output_size)
    count = kept.sum(dtype=torch.int32)
    first = torch.where(kept, 0, 1).argsort(stable=True)[:output_size]
    selected = torch.where(torch.arange(len(first), device=boxes.device) < count, order[first], 0)
    return selected.to(torch.int32), count


def distributed_mm(w: torch.Tensor, x: torch.Tensor, split: int = 1) -> torch.Tensor:
    """``W @ x`` of a weight whose columns are divided over the replicas.

    ``w`` is this replica's part ``[N, K / world]``, ``x`` ``[K, M]`` its own input. ``M / split`` columns are exchanged
    at a time.
    """
    ordinal, world = distributed.global_ordinal(), distributed.world_size()
    if x.size(0) // world != w.size(1):
        raise AssertionError(f"w {list(w.shape)} of {world} replicas does not go with x {list(x.shape)}")
    if x.size(1) % split:
        raise AssertionError(f"{x.size(1)} columns do not divide into {split}")
    results = []
    for part in x.split(x.size(1) // split, dim=1):
        everyones = torch.narrow(all_gather(part, dim=1), 0, ordinal * w.size(1), w.size(1))
        product = all_reduce(xm.REDUCE_SUM, w @ everyones)
        results.append(torch.narrow(product, 1, ordinal * part.size(1), part.size(1)))
    return torch.cat(results, dim=1)


class _MeanOfReplicas(torch.autograd.Function):
    """The mean over all replicas. Each replica's loss depends on it, so its gradient is the mean of theirs."""

    @staticmethod
    def forward(ctx: Any, input: torch.Tensor) -> torch.Tensor:
        mean: torch.Tensor = distributed.all_reduce(xm.REDUCE_SUM, input, scale=1.0 / distributed.world_size())
        return mean

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> torch.Tensor:
        mean: torch.Tensor = distributed.all_reduce(xm.REDUCE_SUM, grad_output, scale=1.0 / distributed.world_size())
        return mean


def _mean(value: torch.Tensor) -> torch.Tensor:
    return _MeanOfReplicas.apply(value)  # type: ignore[no-any-return, no-untyped-call]


class SyncBatchNorm(torch.nn.Module):
    """Batch normalization over the batches of all replicas together, ``[N, C, ...]`` of equal size in each.

    Its state is ``torch.nn.BatchNorm2d``'s without the count of batches. Raises ``ValueError`` for other shapes.
    """

    running_mean: torch.Tensor
    running_var: torch.Tensor

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.weight = torch.nn.Parameter(torch.ones(num_features))
        self.bias = torch.nn.Parameter(torch.zeros(num_features))
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """``batch`` normalized: in training by its own statistics, else by the running ones."""
        if not 2 <= batch.ndim <= 5 or batch.shape[1] != self.num_features:
            raise ValueError(f"a batch of shape {list(batch.shape)} has not {self.num_features} channels (dimension 1)")
        across = [1, self.num_features] + [1] * (batch.ndim - 2)
        if not self.training:
            mean, variance = self.running_mean, self.running_var
        else:
            others = [d for d in range(batch.ndim) if d != 1]
            mean = _mean(batch.mean(others, dtype=self.running_mean.dtype))
            variance = _mean((batch - mean.view(across)).square().mean(others))
            self._follow(mean.detach(), variance.detach(), batch.numel() // self.num_features)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        normalized = (batch - mean.view(across)) * scale.view(across) + self.bias.view(across)
        return normalized.to(batch.dtype)

    def _follow(self, mean: torch.Tensor, variance: torch.Tensor, count: int) -> None:
        """Move the running statistics towards those of this batch, of ``count`` values per channel and replica."""
        count *= distributed.world_size()
        unbiased = variance * (count / max(count - 1, 1))
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(unbiased, self.momentum)
