"""An event of each kind with every field set, built from the declarations: what is new in the schema is new here."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect

from xlaprof.events import kinds


def every_event(text: str) -> list[dict[str, Any]]:
    """Each as it stands in a log, but the header, with ``text`` in the place of every string."""
    return [{"k": kind, **_fields(of, text)} for kind, of in sorted(kinds().items()) if kind != "header"]


def _fields(of: type[msgspec.Struct], text: str) -> dict[str, Any]:
    declared = inspect.type_info(of)
    assert isinstance(declared, inspect.StructType)
    return {field.encode_name: _example(field.type, text) for field in declared.fields}


def _example(kind: inspect.Type, text: str) -> Any:
    """A value of a declared type, with something in every list and dictionary."""
    match kind:
        case inspect.StrType():
            return text
        case inspect.IntType():
            return 1
        case inspect.FloatType():
            return 0.5
        case inspect.BoolType():
            return True
        case inspect.ListType(item_type=item, min_length=least):
            return [_example(item, text)] * max(1, least or 1)
        case inspect.TupleType(item_types=items):
            return [_example(item, text) for item in items]
        case inspect.DictType(key_type=key, value_type=value):
            return {_example(key, text): _example(value, text)}
        case inspect.UnionType(types=types):
            return _example(next(one for one in types if not isinstance(one, inspect.NoneType)), text)
        case inspect.StructType(cls=cls, array_like=as_list):
            fields = _fields(cls, text)
            return list(fields.values()) if as_list else fields
    raise AssertionError(f"events have a type that this test knows nothing of: {kind}")
