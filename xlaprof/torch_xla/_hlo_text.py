"""An ``HloModuleProto`` in protobuf's text format, as ``LoweringContext.hlo_text`` of PyTorch/XLA prints it.

The schema is ``xla/service/hlo.proto`` and ``xla/xla_data.proto`` of openxla/xla. No installable package ships its
generated classes, so those for the fields that readers need are built here. Other fields are printed by their numbers,
as protobuf prints unknown ones.
"""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import json_format, text_format

from xlaprof.export.messages import classes

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


def text(module: bytes) -> str:
    """A serialized ``HloModuleProto`` as text: ``opcode: "add"``..."""
    result: str = text_format.MessageToString(_module_class().FromString(module), print_unknown_fields=True)
    return result


def json(module: bytes) -> str:
    """A serialized ``HloModuleProto`` as JSON, of the fields that are named."""
    result: str = json_format.MessageToJson(_module_class().FromString(module))
    return result
