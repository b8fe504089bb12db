"""Where the graph that Dynamo captured makes numbers wider, and copies tensors from one device to another.

Dynamo keeps a tensor without values for each operation, with the dtype and device that it will have, under autocast
and for NumPy's functions too. What follows of these is certain for every backend, and so are the lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from xlaprof.recording.stacks import RawFrame

from .guards import subject
from .process import short
from .unrolled import graph_nodes, lines

_KEPT = 32  # of one graph
#: how Dynamo wraps what is NumPy's
_WRAPPERS, _WRAPPED, _ATTRIBUTE = "torch._dynamo.utils", "wrapped_", "numpy_attr_wrapper"
_SEEN = 1_000  # operations looked through for NumPy's behind a copy


class Conversion(NamedTuple):
    """Operations of one line that change the dtype of numbers, or the device of tensors, alike."""

    kind: str  # "upcast" | "copy"
    op: str  # "softmax", "np.linspace"
    old: str  # "bf16", "cuda"; "" of an upcast: it takes no floating-point numbers
    new: str  # "f32", "cpu"
    frames: tuple[RawFrame, ...]  # the user's lines, innermost first
    mixed: bool  # of an upcast: another tensor that it takes is as wide already
    numpy: bool  # of a copy: NumPy's functions take what was copied
    beside: str  # of mixed: the input of the graph that this tensor is, or is computed of, as the program names it


class Converted(NamedTuple):
    """What a captured graph converts."""

    found: dict[Conversion, int]  # with how many operations, in the order of the graph
    double: int  # operations that make float64 numbers


def captured() -> Converted:
    """Of the graph whose record Dynamo writes; of nothing where this PyTorch has other frames."""
    return converted(graph_nodes())


def converted(nodes: list[Any]) -> Converted:
    """Of these nodes of a graph, with the example values that Dynamo gave them."""
    found: dict[Conversion, int] = {}
    double = 0
    for node in nodes:
        if node.op not in ("call_function", "call_method"):
            continue
        made = _tensors([node])
        double += any(str(one.dtype) == "torch.float64" for one in made)
        for one in _of(node, made):
            if one in found or len(found) < _KEPT:
                found[one] = found.get(one, 0) + 1
    return Converted(found, double)


def _of(node: Any, made: list[Any]) -> Iterator[Conversion]:
    if not made:
        return
    taken, out = _tensors(node.all_input_nodes), made[0]
    floating = [one.dtype for one in taken if one.is_floating_point() and (one.ndim or out.ndim == 0)]
    if out.is_floating_point():
        old = min(floating, key=lambda dtype: dtype.itemsize, default=None)
        if old.itemsize < out.dtype.itemsize if old is not None else str(out.dtype) == "torch.float64":
            mixed = any(dtype.itemsize >= out.dtype.itemsize for dtype in floating)
            widened = _conversion("upcast", node, short(str(old)) if old is not None else "", short(str(out.dtype)))
            yield widened._replace(mixed=mixed, beside=_input_of(node, out.dtype) if mixed else "")
    devices = list(dict.fromkeys(one.device.type for one in taken))
    if _name(node) == "copy_" and len(devices) > 1:
        yield _conversion("copy", node, devices[1], devices[0])
    elif devices and out.device.type not in devices:
        yield _conversion("copy", node, devices[0], out.device.type)


def _conversion(kind: str, node: Any, old: str, new: str) -> Conversion:
    frames = tuple(RawFrame._make(one) for one in lines(node))
    return Conversion(kind, _name(node), old, new, frames, False, kind == "copy" and _for_numpy(node), "")


def _input_of(node: Any, dtype: Any) -> str:
    """The input of the graph that brings the dtype to the node, by what the node takes in that dtype; "": none does."""
    waiting, seen = [node], {node}
    while waiting and len(seen) < _SEEN:
        for taken in waiting.pop().all_input_nodes:
            if taken in seen or dtype not in [one.dtype for one in _tensors([taken])]:
                continue
            if taken.op == "placeholder":
                name = getattr(getattr(taken.meta.get("grapharg"), "source", None), "name", "")
                return subject(str(name() if callable(name) else name))  # a method in older ones of PyTorch
            seen.add(taken)
            waiting.append(taken)
    return ""


def _for_numpy(node: Any) -> bool:
    """Whether one of NumPy's functions takes what this makes, or something made of it on the same device."""
    waiting, seen = [node], {node}
    while waiting and len(seen) < _SEEN:
        for user in waiting.pop().users:
            if _name(user).startswith("np."):
                return True
            if user not in seen and [one.device for one in _tensors([user])] == [
                one.device for one in _tensors([node])
            ]:
                seen.add(user)
                waiting.append(user)
    return False


def _tensors(nodes: list[Any]) -> list[Any]:
    """The tensors that these make."""
    found = []
    for node in nodes:
        value = node.meta.get("example_value")
        several = value if isinstance(value, tuple | list) else (value,)
        found += [one for one in several if hasattr(one, "is_floating_point") and hasattr(one, "device")]
    return found


def _name(node: Any) -> str:
    """An operation's name: "softmax" of a method and a function; of NumPy's functions "np.sin"."""
    target = node.target
    name = str(getattr(target, "__name__", target))
    if name == _ATTRIBUTE and len(node.args) > 1:
        return f"np.{node.args[1]}"
    if type(target).__module__ == _WRAPPERS and name.startswith(_WRAPPED):
        return f"np.{name.removeprefix(_WRAPPED)}"
    return name
