"""``torch_xla._XLAC.lowering``: a pending graph as HLO, with the values of its parameters.

The schema of its text is ``xla/service/hlo.proto`` and ``xla/xla_data.proto`` of openxla/xla. No installable package
ships its generated classes, so those for the fields that readers need are built here.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from google.protobuf import json_format, text_format

from xlaprof.export.messages import classes
from xlaprof.torch_xla import _graphs

_PROTO = """
enum PrimitiveType {
  PRIMITIVE_TYPE_INVALID PRED S8 S16 S32 S64 U8 U16 U32 U64 F16 F32 F64 TUPLE OPAQUE_TYPE C64 BF16 TOKEN C128
}
message LayoutProto {
  repeated int64 minor_to_major = 1;
}
message ShapeProto {
  PrimitiveType element_type = 2; repeated int64 dimensions = 3; repeated ShapeProto tuple_shapes = 4;
  LayoutProto layout = 5; repeated bool is_dynamic_dimension = 6;
}
message ProgramShapeProto {
  repeated ShapeProto parameters = 1; ShapeProto result = 2; repeated string parameter_names = 3;
}
message OpMetadata {
  string op_type = 1; string op_name = 2;
}
message HloInstructionProto {
  string name = 1; string opcode = 2; ShapeProto shape = 3; OpMetadata metadata = 7; int64 parameter_number = 9;
  int64 tuple_index = 13; repeated int64 dimensions = 14; string custom_call_target = 28; int64 id = 35;
  repeated int64 operand_ids = 36; repeated int64 control_predecessor_ids = 37;
  repeated int64 called_computation_ids = 38;
}
message HloComputationProto {
  string name = 1; repeated HloInstructionProto instructions = 2; ProgramShapeProto program_shape = 4; int64 id = 5;
  int64 root_id = 6;
}
message HloModuleProto {
  string name = 1; string entry_computation_name = 2; repeated HloComputationProto computations = 3;
  ProgramShapeProto host_program_shape = 4; int64 id = 5; int64 entry_computation_id = 6;
}
"""


@functools.cache
def _module_class() -> Any:
    return classes("xlaprof.hlo", _PROTO)["HloModuleProto"]


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
        """:meth:`hlo` in protobuf's text format: ``opcode: "add"``... Fields that are not named bear their numbers."""
        return str(text_format.MessageToString(_module_class().FromString(self.hlo()), print_unknown_fields=True))

    def hlo_json(self) -> str:
        """:meth:`hlo` as JSON, of the fields that are named."""
        return str(json_format.MessageToJson(_module_class().FromString(self.hlo())))

    def parameter_id_tensor_mapping(self) -> dict[int, torch.Tensor]:
        """Number of a parameter -> its value, on the host."""
        return {number: _graphs.value_of(array) for number, array in self._parameters.items()}

    def tensor_parameter_id(self, tensor: torch.Tensor) -> int:
        """Number of the parameter that ``tensor`` is; -1 if it is none."""
        held = getattr(getattr(tensor, "_storage", None), "array", None)
        return next((number for number, array in self._parameters.items() if array is held is not None), -1)
