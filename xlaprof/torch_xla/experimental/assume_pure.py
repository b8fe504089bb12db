"""``torch_xla.experimental.assume_pure``: functions without side effects, recorded as one operation."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from xlaprof.runtime.functional.jax_functions import j2t_autograd
from xlaprof.runtime.functional.pure import Like, Traced, Untraceable, modes, trace, tracing
from xlaprof.runtime.functional.traced_op import call
from xlaprof.runtime.trace.tensor import XLATensor
from xlaprof.torch_xla._random import fork_rng, set_rng_state

__all__ = ["PureModule", "assume_pure", "assume_pure_torch", "j2t_autograd"]

P = ParamSpec("P")
R = TypeVar("R")

#: traces kept for each function
_LIMIT = 256


#: functions of :func:`assume_pure_torch`, by name
_XLA_COMPUTATION_CACHE: dict[str, Callable[..., Any]] = {}


def assume_pure(fn: Callable[P, R], *, add_rng_seed_argument: bool = False) -> Callable[..., R]:
    """``fn``, traced once for arguments of the same shapes, dtypes and numbers, and not called again for those.

    A call then records one operation in each pass, however many ``fn`` consists of. Arguments and results are pytrees.
    Gradients pass to tensors among the arguments, and to other tensors that ``fn`` reads. Those tensors, and the
    numbers that it reads, stay the ones of the trace. Random numbers are new in each call; with
    ``add_rng_seed_argument`` calls have an argument ``rng_seed``, a number that decides them.

    ``fn`` is called each time if it cannot be traced (it reads values, writes to tensors, runs collectives), if an
    argument is neither a tensor on ``xla`` nor hashable, and under SPMD.
    """
    if add_rng_seed_argument:
        return _seeded(assume_pure(fn))
    known: OrderedDict[Any, _Pure | None] = OrderedDict()

    @functools.wraps(fn)
    def pure(*args: P.args, **kwargs: P.kwargs) -> R:
        leaves, spec = tree_flatten((args, kwargs))
        at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        tensors = [leaves[i] for i in at]
        if tracing() or not tensors or not all(isinstance(tensor, XLATensor) for tensor in tensors):
            return fn(*args, **kwargs)
        tape = tensors[0]._storage.tape
        kinds = tuple((tuple(t.shape), t.dtype, t.requires_grad) for t in tensors)
        numbers = tuple((type(leaf), leaf) for leaf in leaves if not isinstance(leaf, torch.Tensor))
        key = (kinds, numbers, spec, tape, *modes())
        try:
            made = known[key]
            known.move_to_end(key)
        except TypeError:  # an argument that is not hashable
            return fn(*args, **kwargs)
        except KeyError:
            try:
                made = None if tape.partition is not None else _Pure(fn, leaves, at, spec)
            except Untraceable:
                made = None
            known[key] = made
            if len(known) > _LIMIT:
                known.popitem(last=False)
        return fn(*args, **kwargs) if made is None else cast(R, made(tensors))

    return pure


def _seeded(pure: Callable[..., R]) -> Callable[..., R]:
    @functools.wraps(pure)
    def seeded(*args: Any, rng_seed: int, **kwargs: Any) -> R:
        with fork_rng():
            set_rng_state(rng_seed)
            return pure(*args, **kwargs)

    return seeded


def assume_pure_torch(func: Callable[P, R], use_cache: bool = False) -> Callable[..., R]:
    """:func:`assume_pure`; with ``use_cache`` a function of the same name keeps the traces of the first one."""
    pure = assume_pure(func)
    return _XLA_COMPUTATION_CACHE.setdefault(func.__name__, pure) if use_cache else pure


class PureModule(nn.Module):
    """``module``, whose forward pass is recorded as by :func:`assume_pure`: traced once for train and for eval mode."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._module = module
        self._pure_forward = assume_pure(functools.partial(_forward, module))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result."""
        tensors = {**dict(self._module.named_parameters()), **dict(self._module.named_buffers())}
        return self._pure_forward(tensors, tuple(m.training for m in self._module.modules()), args, kwargs)


def _forward(module: nn.Module, tensors: dict[str, Any], modes: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    return torch.func.functional_call(module, tensors, args, kwargs)


class _Pure:
    """A function traced for arguments of one kind."""

    def __init__(self, fn: Callable[..., Any], leaves: list[Any], at: list[int], spec: Any) -> None:
        self.spec: Any = None
        self.results: list[Any] = []  # those that are no tensors, and a mark for each tensor

        def flat(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
            given = list(leaves)
            for i, tensor in zip(at, tensors, strict=True):
                given[i] = tensor
            args, kwargs = tree_unflatten(given, spec)
            results, self.spec = tree_flatten(fn(*args, **kwargs))
            self.results = [_TENSOR if isinstance(result, torch.Tensor) else result for result in results]
            return [result for result in results if isinstance(result, torch.Tensor)]

        first: Any = leaves[at[0]]
        like = [Like(tuple(t.shape), t.dtype, t.requires_grad, t.requires_grad) for t in (leaves[i] for i in at)]
        self.traced: Traced = trace(flat, like, first._storage.tape)
        if any(self.traced.written):
            raise Untraceable("it writes to an argument")

    def __call__(self, tensors: list[torch.Tensor]) -> Any:
        results = iter(call(self.traced, tensors))
        return tree_unflatten([next(results) if kept is _TENSOR else kept for kept in self.results], self.spec)


_TENSOR = object()
