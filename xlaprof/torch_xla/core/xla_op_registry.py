"""``torch_xla.core.xla_op_registry``, customarily ``xor``: the user's own operations, composed of XLA's."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import torch

from xlaprof.runtime.tape.computations import Computation
from xlaprof.torch_xla.core import xla_builder as xb


class Op:
    """``op(*tensors, **numbers)`` computes ``opfn(*ops, **numbers)``, whose arguments are :class:`xla_builder.Op`."""

    def __init__(self, name: str, opfn: Callable[..., Any]) -> None:
        self._name = name
        self._opfn = opfn
        self._computations: dict[bytes, Computation] = {}

    def __call__(self, *args: torch.Tensor, **kwargs: Any) -> Any:
        key = pickle.dumps(sorted(kwargs.items()))
        computation = self._computations.get(key)
        if computation is None:
            computation = Computation(f"xla::_op_{self._name}", xb.as_function(self._opfn, **kwargs))
            self._computations[key] = computation
        results = computation(*args)
        return results[0] if len(results) == 1 else tuple(results)


def register(name: str, opfn: Callable[..., Any]) -> Op:
    """The operation ``opfn`` describes. It is recorded under ``name`` and has no gradient of its own."""
    return Op(name, opfn)
