"""The tape's view of ATen operators, read once from each schema."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch._ops import OpOverload

from xlaprof.runtime.lowering.registry import RANDOM
from xlaprof.runtime.lowering.registry import STATIC as STATIC_SCALARS
from xlaprof.runtime.lowering.table import LOWERINGS

# How an argument is keyed on the tape.
TENSOR, TENSORS, SCALAR, STATIC, DROPPED = "tensor", "tensors", "scalar", "static", "dropped"
#: a ``Scalar`` that is part of the graph, whatever its value (exponents, norms' orders...)
BAKED = "baked"

_KIND = {
    "Tensor": TENSOR,
    "Optional[Tensor]": TENSOR,
    "List[Tensor]": TENSORS,
    "List[Optional[Tensor]]": TENSORS,
    "number": SCALAR,
    "Optional[number]": SCALAR,
}

#: arguments of schema type ``float`` (``float?``) that are treated like a ``Scalar`` -> their operators (in place too)
_FLOATS = {
    "momentum": "_batch_norm_no_update _batch_norm_with_update _batch_norm_with_update_functional native_batch_norm "
    "_native_batch_norm_legit _native_batch_norm_legit_functional _native_batch_norm_legit_no_training",
    "p": "bernoulli geometric native_dropout",
    "scale": "native_dropout_backward",
    "median sigma": "cauchy",
    "lambd": "exponential",
    "mean std": "log_normal normal normal_functional",
    "from to": "uniform",
    "nan posinf neginf": "nan_to_num",
    "delta": "huber_loss huber_loss_backward",
    "beta": "smooth_l1_loss smooth_l1_loss_backward",
}

#: arguments that say where and how memory lies: no part of a graph
_DROPPED = {"device", "layout", "pin_memory", "generator", "non_blocking"}


class Op:
    """One overload: how its arguments are keyed, what it writes, and its lowering."""

    def __init__(self, func: OpOverload) -> None:
        schema = func._schema
        self.func = func
        self.name = str(func)
        self.aten = "aten::" + schema.name.split("::")[-1] if schema.name.startswith("aten::") else schema.name
        self.names = tuple(a.name for a in schema.arguments)
        self.writes = tuple(i for i, a in enumerate(schema.arguments) if a.alias_info and a.alias_info.is_write)
        #: the functional overload of an in-place one
        self.twin: OpOverload | None = functional_twin(func) if self.writes else None
        baked = STATIC_SCALARS.get(str(self.twin or func), frozenset())
        base = schema.name.split("::")[-1].rstrip("_")
        floats = {name for names, ops in _FLOATS.items() if base in ops.split() for name in names.split()}
        self.kwarg_kinds = {a.name: BAKED if a.name in baked else _kind(a, floats) for a in schema.arguments}
        self._key_arguments()
        self.lowering = LOWERINGS.get(self.name)
        if self.lowering is None and self.twin is not None:
            self.lowering = LOWERINGS.get(str(self.twin))
        self.random = self.name in RANDOM or (self.twin is not None and str(self.twin) in RANDOM)
        self.returns_list = bool(schema.returns) and "List" in str(schema.returns[0].type)

    def bake(self, names: Collection[str]) -> None:
        """Make the arguments ``names`` part of the graph, whatever their value; before the first call."""
        self.kwarg_kinds.update(dict.fromkeys(names, BAKED))
        self._key_arguments()

    def _key_arguments(self) -> None:
        schema = self.func._schema
        self.kinds = tuple(self.kwarg_kinds[a.name] for a in schema.arguments if not a.kwarg_only)
        #: defaults of the positional arguments. PyTorch leaves out an argument that equals its default, so a number
        #: that changes and once is the default (``bernoulli_(0.5)``) would otherwise be another graph there.
        self.filled: tuple[Any, ...] = ()
        if any(_may_change(a, self.kwarg_kinds) for a in schema.arguments):
            self.filled = tuple(a.default_value for a in schema.arguments if not a.kwarg_only)

    def __repr__(self) -> str:
        return self.name


def _may_change(argument: Any, kinds: dict[str, str]) -> bool:
    """Is it a positional number whose default is packed, that is, not 0, 1 or -1, which are constants?"""
    default = argument.default_value
    is_number = isinstance(default, (int, float)) and kinds[argument.name] == SCALAR and not argument.kwarg_only
    return is_number and default not in (0, 1, -1)


def _kind(argument: Any, floats: Collection[str]) -> str:
    if argument.name in _DROPPED:
        return DROPPED
    if argument.name in floats and str(argument.type) in ("float", "Optional[float]"):
        return SCALAR
    return _KIND.get(str(argument.type), STATIC)


def functional_twin(func: OpOverload) -> OpOverload | None:
    """``aten.add.Tensor`` for ``aten.add_.Tensor`` and for ``aten.add.out``; ``None`` where there is none."""
    schema = func._schema
    base = schema.name.split("::")[-1]
    namespace = getattr(torch.ops, schema.name.split("::")[0])
    inputs = [a for a in schema.arguments if not (a.kwarg_only and a.alias_info and a.alias_info.is_write)]
    if base.endswith("_") and not base.endswith("__"):
        candidates = [base[:-1], base[:-1] + "_functional"]
    elif base.startswith("__i") and base.endswith("__"):  # __ior__ -> __or__
        candidates = ["__" + base[3:]]
    else:
        candidates = [base]
    want = [(a.name, str(a.type)) for a in inputs]
    for candidate in candidates:
        packet = getattr(namespace, candidate, None)
        if packet is None:
            continue
        for overload in packet.overloads():
            other = getattr(packet, overload)
            if any(a.alias_info and a.alias_info.is_write for a in other._schema.arguments):
                continue
            have = {(a.name, str(a.type)) for a in other._schema.arguments}
            extra = [a for a in other._schema.arguments if (a.name, str(a.type)) not in want]
            if all(w in have for w in want) and all(a.has_default_value() for a in extra):
                return other  # type: ignore[no-any-return]
    return None


def is_view(func: OpOverload) -> bool:
    """Does an output alias the first argument without writing to it?"""
    schema = func._schema
    if not schema.arguments or not schema.returns:
        return False
    first = schema.arguments[0].alias_info
    return first is not None and not first.is_write and schema.returns[0].alias_info is not None
