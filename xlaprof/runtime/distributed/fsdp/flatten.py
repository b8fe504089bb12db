"""A module's parameters as views of one vector."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from xlaprof.runtime.pytorch.wrapping import Wrapper

#: where a parameter is: a module and the name of its attribute
Place = tuple[nn.Module, str]


def replace_parameter(place: Place, value: torch.Tensor) -> None:
    """Set the attribute to ``value``, which is no longer a parameter of the module."""
    module, name = place
    module._parameters.pop(name, None)
    setattr(module, name, value)  # so that modules that keep lists of their parameters notice
    module._parameters.pop(name, None)
    object.__setattr__(module, name, value)


class FlattenedModule(Wrapper):
    """``module`` with each of ``groups`` of its parameters in one vector, ``flat_param_0``...; by default none.

    Names in its ``state_dict`` are those of the module's.
    """

    _inner = "_fpw_module"

    def __init__(self, module: nn.Module, groups: Iterable[Sequence[nn.Parameter]] = ()) -> None:
        super().__init__()
        self._fpw_module = module
        self._shown: list[list[tuple[list[Place], torch.Size]]] = []
        self._names: list[list[str]] = []
        for group in groups:
            if group:
                self._flatten(group)
        self._register_state_dict_hook(_strip_prefix)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_add_prefix)  # type: ignore[no-untyped-call]

    @property
    def module(self) -> nn.Module:
        """The wrapped module."""
        return self._fpw_module

    def _flatten(self, params: Sequence[nn.Parameter]) -> None:
        if len({(p.dtype, p.device) for p in params}) > 1:
            raise ValueError(
                "parameters that are flattened together are of one dtype on one device, not of "
                f"{sorted({f'{p.dtype} on {p.device}' for p in params})}"
            )
        places: dict[int, list[Place]] = {id(p): [] for p in params}
        names: dict[int, str] = {}
        for prefix, module in self.named_modules():
            for name, param in module.named_parameters(recurse=False):
                if id(param) in places:
                    places[id(param)].append((module, name))  # a shared parameter has several places
                    names.setdefault(id(param), f"{prefix}.{name}")
        flat = nn.Parameter(torch.cat([p.detach().reshape(-1) for p in params]), params[0].requires_grad)
        self.register_parameter(f"flat_param_{len(self._shown)}", flat)
        self._shown.append([(places[id(p)], p.shape) for p in params])
        self._names.append([names[id(p)] for p in params])
        self.show()

    @property
    def flat_params(self) -> list[nn.Parameter]:
        """The vectors."""
        return [getattr(self, f"flat_param_{i}") for i in range(len(self._shown))]

    def show(self) -> None:
        """Make the module's parameters views of the vectors."""
        for flat, shown in zip(self.flat_params, self._shown, strict=True):
            at = 0
            for places, shape in shown:
                view = flat[at : at + shape.numel()].view(shape)
                at += shape.numel()
                for place in places:
                    replace_parameter(place, view)

    def metadata(self, index: int) -> tuple[list[str], list[torch.Size], list[int]]:
        """Names, shapes and sizes of the parameters in ``flat_param_<index>``."""
        shapes = [shape for _, shape in self._shown[index]]
        return self._names[index], shapes, [shape.numel() for shape in shapes]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.show()  # again each time: gradients go through these views
        return self.module(*args, **kwargs)


def _strip_prefix(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    _renamed(state, prefix + "_fpw_module.", prefix)


def _add_prefix(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    _renamed(state, prefix, prefix + "_fpw_module.")


def _renamed(state: dict[str, Any], old: str, new: str) -> None:
    for key in [key for key in state if key.startswith(old)]:
        state[new + key.removeprefix(old)] = state.pop(key)
