"""Protobuf message classes from the text of a .proto, for formats of which no package ships the generated ones.

Needs ``protobuf``: import it where such messages are read or written.
"""

from __future__ import annotations

import re
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto
_FIELD = re.compile(r"(repeated )?(\w+) (\w+) = (\d+);")


def classes(package: str, proto: str) -> dict[str, Any]:
    """The message classes by name, in a descriptor pool of their own.

    ``proto`` holds ``message`` and ``enum`` blocks, each closed by a brace at the beginning of a line; a message has at
    most one ``oneof``, an enum only the names of its values, counted from 0.
    """
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    blocks = re.findall(r"^(message|enum) (\w+) \{(.*?)^\}", proto, re.DOTALL | re.MULTILINE)
    enums = {name for kind, name, _ in blocks if kind == "enum"}
    for kind, name, body in blocks:
        if kind == "enum":
            enum = file.enum_type.add(name=name)
            for number, value in enumerate(re.findall(r"\w+", body)):
                enum.value.add(name=value, number=number)
            continue
        message = file.message_type.add(name=name)
        oneof = re.search(r"oneof (\w+) \{(.*?)\}", body, re.DOTALL)
        if oneof:
            message.oneof_decl.add(name=oneof[1])
        for found in _FIELD.finditer(body):
            repeated, type_name, field_name, tag = found.groups()
            field = message.field.add(name=field_name, number=int(tag))
            field.label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
            scalar: Any = getattr(_Field, f"TYPE_{type_name.upper()}", None)
            if scalar is not None:
                field.type = scalar
            else:
                field.type = _Field.TYPE_ENUM if type_name in enums else _Field.TYPE_MESSAGE
                field.type_name = f".{package}.{type_name}"
            if oneof and oneof.start() < found.start() < oneof.end():
                field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    types = (pool.FindMessageTypeByName(f"{package}.{message.name}") for message in file.message_type)
    return {one.name: message_factory.GetMessageClass(one) for one in types}
