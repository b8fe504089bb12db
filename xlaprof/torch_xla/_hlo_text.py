"""An ``HloModuleProto`` in protobuf's text format, as ``LoweringContext.hlo_text`` of PyTorch/XLA prints it.

The schema is ``xla/service/hlo.proto`` and ``xla/xla_data.proto`` of openxla/xla. No installable package ships its
generated classes, so those of what a reader looks for are built here: fields that are not named are printed by their
numbers, as protobuf prints what it does not know.
"""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import descriptor_pb2, json_format, text_format

from xlaprof.export.messages import Schema, classes

_Field = descriptor_pb2.FieldDescriptorProto
_INT, _STRING, _BOOL = _Field.TYPE_INT64, _Field.TYPE_STRING, _Field.TYPE_BOOL

_SCHEMA: Schema = {
    "LayoutProto": {"minor_to_major": (1, _INT, True)},
    "ShapeProto": {
        "element_type": (2, "PrimitiveType", False),
        "dimensions": (3, _INT, True),
        "tuple_shapes": (4, "ShapeProto", True),
        "layout": (5, "LayoutProto", False),
        "is_dynamic_dimension": (6, _BOOL, True),
    },
    "ProgramShapeProto": {
        "parameters": (1, "ShapeProto", True),
        "result": (2, "ShapeProto", False),
        "parameter_names": (3, _STRING, True),
    },
    "OpMetadata": {"op_type": (1, _STRING, False), "op_name": (2, _STRING, False)},
    "HloInstructionProto": {
        "name": (1, _STRING, False),
        "opcode": (2, _STRING, False),
        "shape": (3, "ShapeProto", False),
        "metadata": (7, "OpMetadata", False),
        "parameter_number": (9, _INT, False),
        "tuple_index": (13, _INT, False),
        "dimensions": (14, _INT, True),
        "custom_call_target": (28, _STRING, False),
        "id": (35, _INT, False),
        "operand_ids": (36, _INT, True),
        "control_predecessor_ids": (37, _INT, True),
        "called_computation_ids": (38, _INT, True),
    },
    "HloComputationProto": {
        "name": (1, _STRING, False),
        "instructions": (2, "HloInstructionProto", True),
        "program_shape": (4, "ProgramShapeProto", False),
        "id": (5, _INT, False),
        "root_id": (6, _INT, False),
    },
    "HloModuleProto": {
        "name": (1, _STRING, False),
        "entry_computation_name": (2, _STRING, False),
        "computations": (3, "HloComputationProto", True),
        "host_program_shape": (4, "ProgramShapeProto", False),
        "id": (5, _INT, False),
        "entry_computation_id": (6, _INT, False),
    },
}
_TYPES = (
    "PRIMITIVE_TYPE_INVALID", "PRED", "S8", "S16", "S32", "S64", "U8", "U16", "U32", "U64", "F16", "F32", "F64",
    "TUPLE", "OPAQUE_TYPE", "C64", "BF16", "TOKEN", "C128",
)  # fmt: skip


@functools.cache
def _module_class() -> Any:
    return classes("xlaprof.hlo", _SCHEMA, enums={"PrimitiveType": _TYPES})["HloModuleProto"]


def text(module: bytes) -> str:
    """A serialized ``HloModuleProto`` as text: ``opcode: "add"``..."""
    told: str = text_format.MessageToString(_module_class().FromString(module), print_unknown_fields=True)
    return told


def json(module: bytes) -> str:
    """A serialized ``HloModuleProto`` as JSON, of the fields that are named."""
    told: str = json_format.MessageToJson(_module_class().FromString(module))
    return told
