"""ZeRO-1: each rank keeps the optimizer's state of its own part of every parameter, and steps that part alone.

A step reduces and scatters the gradients, clips them by their norm over all ranks, steps the wrapped optimizer over
this rank's shards, and gathers the parameters again. All of it is recorded into the graph of the step. Parameters are
split in their first dimension, padded with zeros to a multiple of the number of ranks.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from xlaprof.runtime.modes import barriers
from xlaprof.runtime.trace.tensor import XLATensor
from xlaprof.runtime.transfer import host

from . import collectives
from .job import world

_log = logging.getLogger(__name__)

#: for each exchange ``scale_factor``, ``sharding_group`` (groups of ranks) and ``group_size``
Scheme = list[dict[str, Any]]


class ZeroRedundancyOptimizer(torch.optim.Optimizer):
    """``optimizer_class`` over the parameters on ``xla``, with its state divided among the ranks.

    Args:
        params: parameters, or groups of them, all on one device.
        optimizer_class: steps each rank's shards. One that needs a whole parameter (its norm, in LAMB) sees a part.
        optimizer_dtype: of the shards and so of the optimizer's state; float32 by default.
        grad_clipping: clip the gradients to ``max_norm`` (1.0), over all ranks. :attr:`grad_norm` has the norm before.
        pin_layout: handed to the collectives; :func:`~.collectives.all_gather_bucketized` takes ``False`` only.
        sharding_groups: groups of ranks that divide the state among themselves; one group of all by default.
        grad_norm_groups: groups over which the squared norm is summed as well (those of model parallelism).
        lazy_init: shards are made by :meth:`init_zero`, not here.
        bucket_cap_mb_all_gather: gather several parameters in exchanges of that size; 0: one exchange for each.
        bucket_cap_mb_reduce_scatter: the same for gradients.
        use_grad_acc_hook: accumulate gradients in ``optimizer_dtype`` as they are computed, and free them at once.
        save_master_weights: :meth:`state_dict` has this rank's shards too.
        higher_cc_precision: gradients are exchanged in ``optimizer_dtype``.
        coalesce_cc: both sizes of exchanges are 160 MiB where they are not given.
        defaults: further arguments of ``optimizer_class``.
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: type[torch.optim.Optimizer],
        optimizer_dtype: torch.dtype | None = None,
        grad_clipping: bool = True,
        max_norm: float | None = None,
        pin_layout: bool = True,
        sharding_groups: Any = None,
        grad_norm_groups: Any = None,
        lazy_init: bool = False,
        bucket_cap_mb_all_gather: int = 0,
        bucket_cap_mb_reduce_scatter: int = 0,
        use_grad_acc_hook: bool = False,
        save_master_weights: bool = False,
        higher_cc_precision: bool = False,
        coalesce_cc: bool = False,
        **defaults: Any,
    ) -> None:
        super().__init__(params, defaults)
        self.global_world_size = world.world_size()
        self.global_rank = world.global_ordinal()
        whole_world = [list(range(self.global_world_size))]
        self._sharding_groups = whole_world if sharding_groups is None else sharding_groups
        self._grad_norm_groups = grad_norm_groups
        self.optimizer_class = optimizer_class
        self.defaults = defaults
        self.optimizer_dtype = optimizer_dtype or torch.float32
        self.grad_clipping = grad_clipping
        self.max_norm = 1.0 if max_norm is None else max_norm
        self.pin_layout = pin_layout
        self.bucket_cap_mb_all_gather = bucket_cap_mb_all_gather or (160 if coalesce_cc else 0)
        self.bucket_cap_mb_reduce_scatter = bucket_cap_mb_reduce_scatter or (160 if coalesce_cc else 0)
        self.use_grad_acc_hook = use_grad_acc_hook
        self.save_master_weights = save_master_weights
        self.higher_cc_precision = higher_cc_precision
        self._grad_norm: torch.Tensor | None = None
        self._hooks: list[Any] = []
        lower = {p.dtype for p in self._parameters()} - {self.optimizer_dtype}
        if lower and not save_master_weights:
            _log.warning(
                "parameters are %s, and stepped as %s: what a checkpoint without save_master_weights=True resumes from "
                "is rounded",
                ", ".join(map(str, lower)),
                self.optimizer_dtype,
            )
        self.inited = False
        if not lazy_init:
            self.init_zero()

    @property
    def grad_norm(self) -> torch.Tensor | None:
        """The norm of all gradients at the last step, before they were clipped."""
        return self._grad_norm

    @property
    def sharding_groups(self) -> Any:
        """Groups of ranks that divide the state among themselves; may be set until :meth:`init_zero`."""
        return self._sharding_groups

    @sharding_groups.setter
    def sharding_groups(self, groups: Any) -> None:
        assert not self.inited, "already inited, cannot change sharding_groups"
        self._sharding_groups = groups

    # -- shards -----------------------------------------------------------------------------------

    def init_zero(self) -> None:
        """Take this rank's shards of the parameters as they are now, and make the optimizer over them."""
        self.remove_hooks()
        self.local_world_size = len(self.sharding_groups[0])
        group = next((list(group) for group in self.sharding_groups if self.global_rank in group), None)
        if group is None:
            raise ValueError(
                f"Current rank {self.global_rank} is missing from the sharding_groups {self.sharding_groups}"
            )
        self.local_rank = group.index(self.global_rank)
        self.base_optimizer = self.optimizer_class(self._sharded(), **self.defaults)
        _copy_options(self.param_groups, self.base_optimizer.param_groups)
        self.inited = True

    def _parameters(self) -> Iterator[nn.Parameter]:
        return (param for group in self.param_groups for param in group["params"])

    def _pairs(self) -> Iterator[tuple[Any, Any]]:
        """Each parameter with this rank's shard."""
        for group, sharded in zip(self.param_groups, self.base_optimizer.param_groups, strict=True):
            yield from zip(group["params"], sharded["params"], strict=True)

    def _stepped(self) -> list[tuple[Any, Any]]:
        """The pairs that have a gradient."""
        return [
            (param, shard)
            for param, shard in self._pairs()
            if param.grad is not None or (self.use_grad_acc_hook and hasattr(shard, "main_grad"))
        ]

    def _sharded(self) -> list[dict[str, Any]]:
        devices = {param.device for param in self._parameters()}
        if {device.type for device in devices} != {"xla"} or len(devices) > 1:
            raise ValueError(
                f"ZeroRedundancyOptimizer takes parameters on one xla device, not on {sorted(map(str, devices))}: "
                "move the model there first, model.to('xla')"
            )
        (self.device,) = devices
        groups = []
        for group in self.param_groups:
            shards = []
            for param in group["params"]:
                data = self._shard(param.detach()).to(self.optimizer_dtype, copy=True)
                shard = nn.Parameter(data, requires_grad=param.requires_grad)
                if self.use_grad_acc_hook and param.requires_grad:
                    self._hooks.append(param.register_post_accumulate_grad_hook(self._accumulating(shard)))
                shards.append(shard)
            groups.append({**group, "params": shards})
        # Computed now: else the first step's graph would contain this, and differ from the second's.
        host.compute(
            [shard._storage for group in groups for shard in group["params"] if isinstance(shard, XLATensor)],
            wait=False,
        )
        return groups

    def _shard(self, tensor: torch.Tensor) -> torch.Tensor:
        return collectives.padded(tensor, self.local_world_size).chunk(self.local_world_size)[self.local_rank]

    def _accumulating(self, shard: Any) -> Callable[[torch.Tensor], None]:
        def add(param: Any) -> None:
            if param.grad is None:
                return
            if not hasattr(shard, "main_grad"):
                self._make_main_grad(param, shard)
            with torch.no_grad():
                shard.main_grad.add_(param.grad.to(self.optimizer_dtype))
            param.grad = None

        return add

    def _make_main_grad(self, param: Any, shard: Any) -> None:
        shard.main_grad = param.main_grad = torch.zeros(param.shape, dtype=self.optimizer_dtype, device=self.device)

    def remove_hooks(self) -> None:
        """Remove the hooks that accumulate gradients: they stay with the parameters."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    # -- a step -----------------------------------------------------------------------------------

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Step this rank's shards, then gather the parameters from all ranks' shards.

        ``sharding_scheme`` in ``kwargs`` names several exchanges, one within the other; the wrapped optimizer gets the
        other ``kwargs``.
        """
        assert self.inited, "must call init_zero() first"
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._reduce_gradients(**kwargs)
        if self.grad_clipping:
            self._clip_grad_norm(self.max_norm)
        self._update_parameters(**kwargs)
        return loss

    def _get_sharding_scheme(self, kwargs: dict[str, Any]) -> Scheme:
        whole_world = [
            {"scale_factor": 1.0, "sharding_group": self.sharding_groups, "group_size": self.local_world_size}
        ]
        scheme: Scheme = kwargs.get("sharding_scheme", whole_world)
        return scheme

    def _reduce_gradients(self, **kwargs: Any) -> None:
        _copy_options(self.param_groups, self.base_optimizer.param_groups)
        pairs = self._stepped()
        parts = []
        for param, shard in pairs:
            grad = collectives.padded(shard.main_grad if self.use_grad_acc_hook else param.grad, self.local_world_size)
            parts.append(grad.to(self.optimizer_dtype) if self.higher_cc_precision else grad)
        for one in self._get_sharding_scheme(kwargs):
            scale, size, groups = one["scale_factor"] / one["group_size"], one["group_size"], one["sharding_group"]
            cap = self.bucket_cap_mb_reduce_scatter
            if cap and parts:
                parts = collectives.reduce_scatter_bucketized(
                    "sum", parts, scale, 0, size, groups, pin_layout=self.pin_layout, bucket_cap_mb=cap
                )
            else:
                parts = [collectives.reduce_scatter("sum", part, scale, 0, size, groups) for part in parts]
        for (_, shard), part in zip(pairs, parts, strict=True):
            shard.grad = part.to(self.optimizer_dtype)

    def _gradients(self) -> list[torch.Tensor]:
        every = [shard.grad for group in self.base_optimizer.param_groups for shard in group["params"]]
        return [grad for grad in every if grad is not None]

    @torch.no_grad()
    def _calc_grad_norm(self, norm_type: float = 2.0) -> torch.Tensor:
        if norm_type != 2.0:
            raise RuntimeError(f"only norm type 2 is supported, getting {norm_type}")
        total = torch.zeros([], dtype=self.optimizer_dtype, device=self.device)
        for grad in self._gradients():
            total += (grad * grad).sum()
        for groups in (self._sharding_groups, self._grad_norm_groups):
            if groups is not None:
                collectives.all_reduce("sum", [total], groups=groups)
        return total.sqrt()

    @torch.no_grad()
    def _clip_grad_norm(self, max_norm: float, norm_type: float = 2.0) -> None:
        self._grad_norm = self._calc_grad_norm(float(norm_type))
        factor = (float(max_norm) / (self._grad_norm + 1e-6)).clamp(max=1.0)
        for grad in self._gradients():
            grad.mul_(factor)

    def _update_parameters(self, **kwargs: Any) -> None:
        scheme = self._get_sharding_scheme(kwargs)
        kwargs.pop("sharding_scheme", None)
        self.base_optimizer.step(closure=None, **kwargs)
        self.base_optimizer.zero_grad(set_to_none=True)
        self.allgather_weights_and_update_full_parameter(scheme)
        _copy_options(self.base_optimizer.param_groups, self.param_groups)

    def allgather_weights_and_update_full_parameter(self, sharding_scheme: Scheme | None = None) -> None:
        """Gather the parameters that have a gradient from the ranks' shards."""
        self._gather(self._stepped(), sharding_scheme or self._get_sharding_scheme({}))

    @torch.no_grad()
    def _gather(self, pairs: list[tuple[Any, Any]], scheme: Scheme) -> None:
        parts = [shard.detach().to(param.dtype) for param, shard in pairs]
        for one in reversed(scheme):
            groups, cap = one["sharding_group"], self.bucket_cap_mb_all_gather
            if cap and parts:
                parts = collectives.all_gather_bucketized(
                    parts, 0, groups, pin_layout=self.pin_layout, bucket_cap_mb=cap
                )
            else:
                parts = [collectives.all_gather(part, 0, groups) for part in parts]
        for (param, _), whole in zip(pairs, parts, strict=True):
            count = param.shape[0] if param.ndim else 1
            param.copy_(whole[:count].reshape(param.shape))

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Set gradients to zero, or to ``None``; those that hooks accumulated are set to zero."""
        super().zero_grad(set_to_none=set_to_none)
        if self.use_grad_acc_hook:
            for _, shard in self._pairs():
                if hasattr(shard, "main_grad"):
                    shard.main_grad.zero_()

    # -- checkpoints ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """This rank's state: ``base_state`` is the wrapped optimizer's, ``shape_info`` the shapes of the parameters.

        With ``save_master_weights`` also ``sharded_master_weights``.
        """
        state = super().state_dict()
        state["base_state"] = self.base_optimizer.state_dict()["state"]
        state["shape_info"] = self.get_shape_info()
        if self.save_master_weights:
            state["sharded_master_weights"] = {i: shard.data for i, (_, shard) in enumerate(self._pairs())}
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what :meth:`state_dict` returned on this rank, in a world of the same size.

        Master weights in it are gathered into the parameters at once.
        """
        state_dict = copy.deepcopy(state_dict)
        base = state_dict.pop("base_state")
        masters = state_dict.pop("sharded_master_weights", None)
        state_dict.pop("shape_info", None)
        super().load_state_dict(state_dict)
        self.init_zero()  # the parameters may have been loaded meanwhile
        self.base_optimizer.load_state_dict({**self.base_optimizer.state_dict(), "state": base})
        if masters is None:
            return
        with torch.no_grad():
            for i, (param, shard) in enumerate(self._pairs()):
                shard.copy_(masters[i])
                if self.use_grad_acc_hook:
                    self._make_main_grad(param, shard)
        barriers.sync()  # so that the gathering is a graph of its own, the same after each load
        self._gather(list(self._pairs()), self._get_sharding_scheme({}))
        barriers.sync()

    def get_shape_info(self) -> dict[int, torch.Size]:
        """The shapes of the parameters, numbered."""
        return {i: param.shape for i, param in enumerate(self._parameters())}


def _copy_options(source: list[dict[str, Any]], target: list[dict[str, Any]]) -> None:
    """Copy what schedulers change (``lr``...) from one optimizer's groups to another's."""
    assert len(source) == len(target), "Mismatch between number of source and destination parameter groups"
    for one, other in zip(source, target, strict=True):
        other.update((name, value) for name, value in one.items() if name != "params")
