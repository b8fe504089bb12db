"""A recorded graph as text, one operation a line with the user's line, as PyTorch/XLA prints its IR."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch

from xlaprof.runtime.trace.ops import BAKED, SCALAR, TENSOR
from xlaprof.runtime.trace.storage import DTYPE_TEXT
from xlaprof.runtime.trace.trie import Const, Node, Packed, Ref

from .graph import Graph
from .tape import Tape

#: PyTorch/XLA's names where they are not ATen's
_IR_NAMES = {"aten::t": "aten::permute", "aten::transpose": "aten::permute", "aten::_to_copy": "xla::cast"}


def rows(tape: Tape, graph: Graph) -> Iterator[tuple[int, str, list[int], str, str]]:
    """For each value: number, operation, operands' numbers, shape, and other properties."""
    numbers: dict[Any, int] = {}

    def number(key: Any) -> int:
        return numbers.setdefault(key, len(numbers))

    types = {slot: s.dtype for slot, s in zip(graph.inputs, graph.sigs, strict=True)}
    types.update((out.slot, out.sig.dtype) for node in graph.nodes for out in node.outs)
    read: dict[Any, str] = {}  # numbers, and the type in which the first operation reads them
    for node in graph.nodes:
        for scalar in _operands(node)[0]:
            if isinstance(scalar, (_Constant, Packed)):
                read.setdefault(scalar, _type_of(scalar, node, types))
    for scalar, dtype in sorted(read.items(), key=lambda item: isinstance(item[0], Packed)):
        if isinstance(scalar, Packed):
            yield number(scalar), "xla::device_data", [], f"{dtype}[]", f"device={device_name(tape)}"
        else:
            yield number(scalar), "prim::Constant", [], f"{dtype}[]", f"value={scalar.text}"
    for slot, signature in zip(graph.inputs, graph.sigs, strict=True):
        yield number(slot), "xla::device_data", [], shape_of(signature), f"device={device_name(tape)}"
    outs = {slot: i for i, slot in enumerate(graph.outs)}
    for node in graph.nodes:
        operands, rest = _operands(node)
        roots = [outs[out.slot] for out in node.outs if out.slot in outs]
        properties = [*rest, *(f"location={p}" for p in _place(node)), *(f"ROOT={root}" for root in roots)]
        shapes = [shape_of(out.sig) for out in node.outs]
        shape = shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"
        assert node.op is not None
        numbered = [number(key) for key in operands]
        first = number(node.outs[0].slot) if node.outs else len(numbers)
        for out in node.outs[1:]:
            numbers[out.slot] = first
        yield first, _IR_NAMES.get(node.op.aten, node.op.aten), numbered, shape, ", ".join(properties)


class _Constant(NamedTuple):
    """A number that is part of the graph."""

    text: str
    whole: bool


def _type_of(scalar: _Constant | Packed, node: Node, types: dict[int, torch.dtype]) -> str:
    """XLA's name of a number's type in ``node``: the tensors' dtype, if that can hold it."""
    slot = next((slot for slot in _operands(node)[0] if slot in types), node.outs[0].slot)
    like = types[slot]
    if not (like.is_floating_point or like.is_complex):
        whole = scalar.whole if isinstance(scalar, _Constant) else scalar.kind == "i"
        if not whole:
            like = torch.get_default_dtype()
        elif like is torch.bool:
            like = torch.int64
    return DTYPE_TEXT[like]


def _operands(node: Node) -> tuple[list[Any], list[str]]:
    """The operation's operands (slots, packed scalars and constants), and its other arguments as text."""
    read: list[Any] = []
    rest: list[str] = []
    names = getattr(node.op, "names", None) or [f"arg{i}" for i in range(len(node.args))]
    kinds = getattr(node.op, "kwarg_kinds", {})
    for name, value in (*zip(names, node.args, strict=False), *node.kwargs.items()):
        number = value.value if type(value) is Const else value
        if kinds.get(name) in (SCALAR, BAKED, TENSOR) and isinstance(number, (bool, int, float, complex)):
            read.append(_Constant(str(number), isinstance(number, int)))
            continue
        found = list(_leaves(value))
        read.extend(found)
        if not found and value is not None:
            rest.append(f"{name}={value}")
    return read, rest


def _leaves(value: Any) -> Iterator[Any]:
    if type(value) is Ref:
        yield value.slot
    elif type(value) is Packed:
        yield value
    elif type(value) is tuple:
        for item in value:
            yield from _leaves(item)


def _place(node: Node) -> list[str]:
    return [f"{node.frames[0].func}@{node.frames[0].file}:{node.frames[0].line}"] if node.frames else []


def shape_of(signature: Any) -> str:
    layout = ",".join(str(d) for d in reversed(range(len(signature.shape))))
    return f"{signature.text}{{{layout}}}" if signature.shape else str(signature.text)


def device_name(tape: Tape) -> str:
    if tape.partition is not None:
        return "SPMD:0"
    return f"{tape.device.platform.upper()}:{tape.device.id}"


def text(tape: Tape, graph: Graph) -> str:
    """The graph as PyTorch/XLA prints its IR."""
    return printed(rows(tape, graph))


def printed(found: Iterable[tuple[int, str, list[int], str, str]]) -> str:
    """Rows of :func:`rows` as PyTorch/XLA prints them."""
    lines = []
    for number, name, operands, shape, properties in found:
        read = ", ".join(f"%{operand}" for operand in operands)
        lines.append(f"  %{number} = {shape} {name}({read}), xla_shape={shape}{', ' if properties else ''}{properties}")
    return "IR {\n" + "\n".join(lines) + "\n}\n"
