"""Protobuf message classes built from a table, for formats of which no installable package ships the generated ones.

Needs ``protobuf``, of the extras: import it where such messages are read or written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto

#: message -> field -> (number, scalar type or name of a message or enumeration, repeated)
Schema = Mapping[str, Mapping[str, tuple[int, int | str, bool]]]


def classes(
    package: str,
    schema: Schema,
    enums: Mapping[str, Sequence[str]] | None = None,
    oneofs: Mapping[str, tuple[str, Sequence[str]]] | None = None,
) -> dict[str, Any]:
    """The message classes by name, in a descriptor pool of their own.

    ``enums`` has the names of each enumeration's values, counted from 0; ``oneofs`` for a message the name of its oneof
    and the fields in it.
    """
    enums, oneofs = enums or {}, oneofs or {}
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for enum_name, values in enums.items():
        enum = file.enum_type.add(name=enum_name)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    for message_name, fields in schema.items():
        message = file.message_type.add(name=message_name)
        oneof, alternatives = oneofs.get(message_name, ("", ()))
        if oneof:
            message.oneof_decl.add(name=oneof)
        for field_name, (number, kind, repeated) in fields.items():
            field = message.field.add(name=field_name, number=number)
            field.label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
            if isinstance(kind, str):
                field.type = _Field.TYPE_ENUM if kind in enums else _Field.TYPE_MESSAGE
                field.type_name = f".{package}.{kind}"
            else:
                field.type = kind
            if field_name in alternatives:
                field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in schema}
