"""``torch_xla._XLAC.lowering``: a pending graph as HLO, with the values of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from xlaprof.torch_xla import _graphs, _hlo_text


class LoweringContext:
    """A pending graph as an ``HloModuleProto``, and the tensor behind each of its parameters."""

    def __init__(self, name: str = "FallBackName") -> None:
        self._name = name
        self._module: bytes | None = None
        self._parameters: dict[int, Any] = {}

    def get_name_string(self) -> str:
        """The name of the computation."""
        return self._name

    def set_name_string(self, name: str) -> None:
        """Call the computation ``name``."""
        self._name = name

    def build(self, tensors: Sequence[torch.Tensor]) -> None:
        """Lower the pending graph of ``tensors``. Raises ``RuntimeError`` where nothing is pending."""
        self._module, self._parameters = _graphs.module_and_parameters(tensors)

    def hlo(self) -> bytes:
        """The graph as a serialized ``HloModuleProto``."""
        if self._module is None:
            raise RuntimeError("there is no computation: call build(tensors) first")
        return self._module

    def hlo_text(self) -> str:
        """:meth:`hlo` in protobuf's text format."""
        return _hlo_text.text(self.hlo())

    def hlo_json(self) -> str:
        """:meth:`hlo` as JSON."""
        return _hlo_text.json(self.hlo())

    def parameter_id_tensor_mapping(self) -> dict[int, torch.Tensor]:
        """Number of a parameter -> its value, on the host."""
        return {number: _graphs.value_of(array) for number, array in self._parameters.items()}

    def tensor_parameter_id(self, tensor: torch.Tensor) -> int:
        """Number of the parameter that ``tensor`` is; -1 if it is none."""
        held = getattr(getattr(tensor, "_storage", None), "array", None)
        return next((number for number, array in self._parameters.items() if array is held is not None), -1)
