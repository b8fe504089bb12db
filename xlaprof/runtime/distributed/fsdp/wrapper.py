"""Fully sharded data parallelism among processes: :class:`XlaFullyShardedDataParallel`."""

from __future__ import annotations

import contextlib
import gc
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map_only

from xlaprof.runtime.distributed import collectives
from xlaprof.runtime.distributed.job import world
from xlaprof.runtime.modes import barriers
from xlaprof.runtime.pytorch import wrapping
from xlaprof.runtime.tape import computations, tapes
from xlaprof.runtime.trace import nested

from . import consolidate, full_parameter, preparing
from .flatten import FlattenedModule, replace_parameter
from .full_parameter import FullParameter, Options
from .reducing import Reducing

_engine: Any = torch.autograd.Variable._execution_engine
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


class XlaFullyShardedDataParallel(wrapping.Wrapper):
    """``module`` with its parameters divided among the ranks: ``parameters()`` are this rank's shards.

    The full parameters are in memory while they are used. They are gathered before the forward pass and, unless kept,
    before the backward pass. Gradients are averaged over the ranks and scattered. Each rank's optimizer is made after
    the module is wrapped, and steps its shards by ``optimizer.step()``. All of this is part of the step's graph. Inner
    modules may be wrapped before; the outer wrapper owns the parameters outside of them.

    Args:
        module: on the host, ``meta`` or ``xla``; the same on all ranks. Parameters are float32.
        reshard_after_forward: gather again in the backward pass, and keep nothing between.
        flatten_parameters: divide and exchange all parameters as one vector.
        execute_sharding_on_init: cut the graph when the shards are made.
        optimization_barrier_in_forward: parameters are gathered when the inputs have been computed, not before.
        optimization_barrier_in_backward: parameters are gathered when the outputs' gradients have been computed.
        mark_step_on_finalization: cut the graph at the end of the backward pass.
        disable_reshard_on_root: the outermost wrapper does not reshard.
        compute_dtype: of the full parameters; inputs are cast to it.
        buffer_dtype: of the buffers; ``compute_dtype`` by default.
        fp32_reduce_scatter: gradients are exchanged as float32.
        sharding_groups: groups of ranks that divide the parameters among themselves; with this rank's place in its
            group, ``sharding_rank``, and the size of that group, ``sharding_world_size``.
        shard_param_on_dim_0: shards are parts of the first dimension, not of the flattened parameter.
        pin_layout_in_collective_ops: has no meaning here: arrays have one layout.
        reduce_scatter_bucket_size_mb: exchange gradients together, up to that size.
        coalesce_all_gather_ops: gather all parameters by one operation.
        auto_wrap_policy: which modules inside are wrapped too (:mod:`xlaprof.runtime.pytorch.wrapping`), by
            ``auto_wrapper_callable`` if that is given.
        param_init_fn: ``param_init_fn(module)`` sets parameters that are on ``meta``; else ``reset_parameters()``.
    """

    _inner = "_fsdp_wrapped_module"

    def __init__(
        self,
        module: nn.Module,
        reshard_after_forward: bool = True,
        flatten_parameters: bool = False,
        execute_sharding_on_init: bool = True,
        optimization_barrier_in_forward: bool = True,
        optimization_barrier_in_backward: bool = True,
        mark_step_on_finalization: bool = False,
        disable_reshard_on_root: bool = True,
        compute_dtype: torch.dtype | None = None,
        buffer_dtype: torch.dtype | None = None,
        fp32_reduce_scatter: bool = False,
        sharding_groups: list[list[int]] | None = None,
        sharding_rank: int | None = None,
        sharding_world_size: int | None = None,
        shard_param_on_dim_0: bool = False,
        pin_layout_in_collective_ops: bool = True,
        reduce_scatter_bucket_size_mb: int | None = 0,
        coalesce_all_gather_ops: bool = False,
        auto_wrap_policy: Callable[..., bool] | None = None,
        auto_wrapper_callable: Callable[..., nn.Module] | None = None,
        param_init_fn: Callable[[nn.Module], None] | None = None,
        _shard_size_multiple: int = 128,
        _use_xla_patched_linear: bool = True,
        **debug: Any,
    ) -> None:
        given = {k: v for k, v in locals().items() if k not in ("self", "module", "debug", "__class__")}
        self._require_wrappable(module)
        _check_debug_options(debug)
        super().__init__()
        if auto_wrap_policy is not None:
            inner = {k: v for k, v in given.items() if not k.startswith("auto_wrap")}
            self._wrap_children(module, auto_wrap_policy, auto_wrapper_callable, **inner, **debug)
        self.reshard_after_forward = self._orig_reshard_after_forward = reshard_after_forward
        self.disable_reshard_on_root = disable_reshard_on_root
        self.flatten_parameters = flatten_parameters
        self.mark_step_on_finalization = mark_step_on_finalization
        if sharding_groups is None:
            sharding_rank, sharding_world_size = world.global_ordinal(), world.world_size()
        elif sharding_rank is None or sharding_world_size is None:
            raise ValueError("sharding_rank and sharding_world_size must be provided when sharding_groups is specified")
        for name, dtype in (("compute_dtype", compute_dtype), ("buffer_dtype", buffer_dtype)):
            if dtype not in (None, *_FLOATS):
                raise ValueError(f"{name} must be one of {list(_FLOATS)}, not {dtype}")
        compute = compute_dtype or torch.float32
        self._options = Options(
            rank=sharding_rank,
            world_size=sharding_world_size,
            sharding_groups=sharding_groups,
            compute_dtype=compute,
            buffer_dtype=buffer_dtype or compute,
            fp32_reduce_scatter=fp32_reduce_scatter,
            flat=flatten_parameters or not shard_param_on_dim_0,
            multiple=1 if shard_param_on_dim_0 else _shard_size_multiple,
            bucket_bytes=(reduce_scatter_bucket_size_mb or 0) * 1024 * 1024,
            coalesce_all_gather_ops=coalesce_all_gather_ops,
            barrier_in_forward=optimization_barrier_in_forward,
            barrier_in_backward=optimization_barrier_in_backward,
        )
        self.rank, self.world_size = self._options.rank, self._options.world_size
        self.sharding_groups = sharding_groups
        self.compute_dtype, self.buffer_dtype = self._options.compute_dtype, self._options.buffer_dtype
        self.xla_device = tapes.tape().torch_device
        preparing.materialize(module, param_init_fn, XlaFullyShardedDataParallel, self.xla_device)
        self._shard(module)
        preparing.move_buffers(self, XlaFullyShardedDataParallel, self.xla_device, self.buffer_dtype)
        self._reducing = Reducing(self._options)
        self._require_backward_grad_sync = True
        self._is_root: bool | None = None
        self._root: list[XlaFullyShardedDataParallel] = []  # in a list: it is no child
        self._final_callback_queued = False
        if execute_sharding_on_init:
            gc.collect()
            barriers.sync()

    def _shard(self, module: nn.Module) -> None:
        unsharded = {id(p): p for p in module.parameters() if not hasattr(p, "_is_sharded")}
        for param in unsharded.values():
            if param.dtype != torch.float32:
                raise TypeError(f"only fp32 parameters are supported, not {param.dtype}: use compute_dtype")
        groups: list[list[nn.Parameter]] = []
        if self.flatten_parameters:
            groups = [[p for p in unsharded.values() if p.requires_grad is trained] for trained in (True, False)]
        self._fsdp_wrapped_module = FlattenedModule(module, groups)
        del unsharded
        places: dict[int, list[tuple[str, nn.Module, str]]] = {}
        params: dict[int, nn.Parameter] = {}
        for prefix, part in list(self.named_modules()):
            for name, param in part.named_parameters(recurse=False):
                if not hasattr(param, "_is_sharded"):
                    params[id(param)] = param
                    places.setdefault(id(param), []).append((f"{prefix}.{name}", part, name))
        self._full: list[FullParameter] = []
        for key, param in params.items():
            one = FullParameter(param, places[key][0][0], self._options, self.xla_device)
            for _, part, name in places[key]:  # a shared parameter has several places
                replace_parameter((part, name), one.param)
            self.register_parameter(one.shard._name, one.shard)
            self._full.append(one)
        self._fsdp_wrapped_module.show()  # releases the original parameters
        for one in self._full:
            one.drop()

    # -- contents ---------------------------------------------------------------------------------

    @property
    def module(self) -> nn.Module:
        """The wrapped module, in the wrapper that flattens its parameters."""
        return self._fsdp_wrapped_module

    @property
    def full_params(self) -> list[nn.Parameter]:
        """The full parameters, without values between uses."""
        return [one.param for one in self._full]

    @property
    def sharded_params(self) -> list[nn.Parameter]:
        """This rank's shards, without those of inner wrappers."""
        return [one.shard for one in self._full]

    @property
    def params_with_grad(self) -> list[nn.Parameter]:
        """The shards that have a gradient."""
        return [p for p in self.parameters() if p.grad is not None]

    @property
    def has_full_params(self) -> bool:
        """Are the full parameters in memory?"""
        return all(one.in_memory for one in self._full)

    def get_original_names_and_sharded_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """As ``named_parameters()``, by the names that the parameters had before they were divided."""
        return [
            (consolidate.original(f"{prefix}.{one.name}" if prefix else one.name), one.shard)
            for prefix, wrapper in self.named_modules()
            if isinstance(wrapper, XlaFullyShardedDataParallel)
            for one in wrapper._full
        ]

    def get_shard_metadata(self) -> dict[str, Any]:
        """Metadata for :func:`~.consolidate.consolidate_sharded_state_dicts`; save it with ``state_dict()``."""
        found: dict[str, Any] = {"shard_info": {}, "flatten_info": {}, "buffer_info": {}}
        for prefix, part in self.named_modules(remove_duplicate=False):
            name = prefix.replace("_fpw_module.", "")
            if isinstance(part, XlaFullyShardedDataParallel):
                found["shard_info"][name] = {
                    one.shard._name: {"_orig_size": one.size, "_orig_name": one.name} for one in part._full
                }
            if isinstance(part, FlattenedModule):
                for i in range(len(part.flat_params)):
                    key = f"{name}.flat_param_{i}" if name else f"flat_param_{i}"
                    found["flatten_info"][key] = part.metadata(i)
        for name, buffer in self.named_buffers():
            before = getattr(buffer, "_orig_dtype", None)
            if before is not None:
                found["buffer_info"][name.replace("_fpw_module.", "")] = {"_orig_dtype": before}
        return {**found, "world_size": self.world_size, "rank": self.rank}

    def extra_repr(self) -> str:
        """The settings, for ``repr``."""
        names = (
            "world_size", "rank", "compute_dtype", "buffer_dtype", "flatten_parameters", "reshard_after_forward",
            "sharding_groups",
        )  # fmt: skip
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)

    # -- passes -----------------------------------------------------------------------------------

    def _lazy_init(self) -> None:
        """Make the wrapper that is called first the root."""
        if self._is_root is None:
            for wrapper in self._wrappers():
                wrapper._is_root, wrapper._root = wrapper is self, [self]
        if self._is_root and self.disable_reshard_on_root:
            self.reshard_after_forward = False

    def _wrappers(self) -> list[XlaFullyShardedDataParallel]:
        return [m for m in self.modules() if isinstance(m, XlaFullyShardedDataParallel)]

    def _gather(self, barrier: bool, after: list[torch.Tensor]) -> list[torch.Tensor]:
        """Gather the full parameters, with ``barrier`` only once ``after`` is computed. Returns ``after``."""
        missing = [one for one in self._full if not one.fresh]
        shards: list[torch.Tensor] = [one.shard.detach() for one in missing]
        if barrier and (shards or after):
            with torch.no_grad():
                passed = computations.optimization_barrier([*shards, *after])
            shards, after = list(passed[: len(shards)]), list(passed[len(shards) :])
        full_parameter.gather(missing, shards, self._options)
        return after

    def _free(self) -> None:
        for one in self._full:
            one.free()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self._lazy_init()
        if self.compute_dtype != torch.float32:
            args, kwargs = tree_map_only(torch.Tensor, self._cast, (args, kwargs), is_leaf=_opaque)
        for one in self._full:
            one.follow(self._reduce)
        leaves = tree_leaves((args, kwargs), is_leaf=_opaque)
        inputs = [t.detach() for t in leaves if isinstance(t, torch.Tensor) and t.device.type == "xla"]
        self._gather(self._options.barrier_in_forward, inputs)
        outputs = self._fsdp_wrapped_module(*args, **kwargs)
        differentiable = nested.tensors(outputs, lambda t: t.requires_grad) if torch.is_grad_enabled() else []
        if self.reshard_after_forward or not differentiable:
            self._free()
        for tensor in differentiable:
            tensor.register_hook(self._before_backward)
        return outputs

    def _cast(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.compute_dtype) if tensor.is_floating_point() else tensor

    @torch.no_grad()
    def _before_backward(self, grad: torch.Tensor) -> torch.Tensor:
        """Begin the module's backward pass: the gradient of an output has been computed."""
        root = self._root[0]
        if not root._final_callback_queued:
            root._final_callback_queued = True
            _engine.queue_callback(root._after_backward)
        return self._gather(self._options.barrier_in_backward, [grad])[0]

    def _reduce(self, one: FullParameter) -> None:
        """Reduce the gradient of a full parameter, which has been computed."""
        if self._require_backward_grad_sync:
            self._reducing.take(one)

    def _after_backward(self) -> None:
        """End a backward pass. The full parameters are freed only now: a part that is computed again may need them,
        and within a graph XLA reuses their memory after their last use anyway.
        """
        self._final_callback_queued = False
        for wrapper in self._wrappers():
            wrapper._reducing.flush()
            if wrapper._require_backward_grad_sync or wrapper.reshard_after_forward:
                wrapper._free()
        if self.mark_step_on_finalization:
            barriers.sync()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Context in which each rank accumulates full gradients; the next backward pass reduces them all."""
        self._lazy_init()
        assert self._is_root, "no_sync on inner FSDP is not supported"
        before = [(wrapper, wrapper._require_backward_grad_sync) for wrapper in self._wrappers()]
        for wrapper, _ in before:
            wrapper._require_backward_grad_sync = False
        try:
            yield
        finally:
            for wrapper, flag in before:
                wrapper._require_backward_grad_sync = flag

    # -- gradients --------------------------------------------------------------------------------

    def set_gradient_divide_factors(self, pre: float, post: float, recursive: bool) -> None:
        """Divide gradients by ``pre`` before they are summed, and by ``post`` after; with 1 and 1 they are averaged."""
        for wrapper in self._wrappers() if recursive else [self]:
            wrapper._reducing.before = pre
            wrapper._reducing.after = wrapper.world_size if (pre, post) == (1, 1) else post

    @torch.no_grad()
    def clip_grad_norm_(
        self, max_norm: float, norm_type: float = 2.0, groups: list[list[int]] | None = None
    ) -> torch.Tensor:
        """Scale the gradients so that their norm, over parameters and ranks (of ``groups``), is ``max_norm`` at most.

        Returns the norm before, on the device; zero without gradients. All ranks have to call it.
        """
        self._lazy_init()
        assert self._is_root, "clip_grad_norm should only be called on the root (parent) instance"
        norm_type = float(norm_type)
        grads = [p.grad.detach() for p in self.params_with_grad if p.grad is not None]
        norms = [torch.linalg.vector_norm(grad, norm_type) for grad in grads]
        local = torch.stack(norms) if norms else torch.zeros(1, device=self.xla_device)
        if norm_type == math.inf:
            total = collectives.all_reduce("max", local.max(), groups=groups)
        else:
            total = collectives.all_reduce("sum", (local**norm_type).sum(), groups=groups) ** (1.0 / norm_type)
        factor = (float(max_norm) / (total + 1e-6)).clamp(0.0, 1.0)
        for grad in grads:
            grad.mul_(factor)
        result: torch.Tensor = total
        return result


def _check_debug_options(debug: dict[str, Any]) -> None:
    for name, value in debug.items():
        if not name.startswith("_debug_"):
            raise TypeError(f"XlaFullyShardedDataParallel got an unexpected keyword argument {name!r}")
        if name.startswith("_debug_dummy") and value:
            raise NotImplementedError(
                f"{name}: operations are never replaced here; xlaprof.record() shows what they cost"
            )


def _opaque(value: Any) -> bool:
    """Is ``value`` no plain container? What other objects hold is theirs."""
    return type(value) not in (list, tuple, dict)
