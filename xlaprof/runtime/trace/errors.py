"""The runtime's own errors, and the note on every error on ``xla`` that names its operation and line.

Messages are PyTorch's wherever it has one (:mod:`.rehearse`). What only this device can refuse is worded here, and is
*final*: no other road (decomposition, CPU) is tried for the operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import torch

from . import source
from .ops import Op
from .storage import Failed, sig

E = TypeVar("E", bound=BaseException)

#: raises what PyTorch's CPU raises for a call, if it does; :mod:`xlaprof.runtime.shapes.rehearse` sets it
rehearse: Callable[[Op, tuple[Any, ...], dict[str, Any]], object] | None = None

#: how notes of ours begin
_NOTE = "on xla: "


class Foreign(Exception):
    """Another tensor class takes part in the call: ``__torch_dispatch__`` answers ``NotImplemented``."""


def final(error: E) -> E:
    """``error``, which stands whatever other way there may be to compute the operation."""
    error._xla_final = True  # type: ignore[attr-defined]
    return error


def is_final(error: BaseException) -> bool:
    """Was ``error`` made by :func:`final`, or is memory gone?"""
    return getattr(error, "_xla_final", False) or isinstance(error, torch.OutOfMemoryError)


def raise_failed(failed: Failed) -> NoReturn:
    """Raise the error that took a tensor its value again, as one of using the tensor."""
    raise final(failed.kind(f"the computation of this tensor failed: {failed.text}"))


def explained(error: Exception, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception:
    """What is raised to the user when the handler of ``func`` raised ``error``: the CPU's error, if it raises one.

    A note names the call and the user's line; of nested calls the outermost, the user's own.
    """
    known = is_final(error) or getattr(error, "_xla_rehearsed", None) == str(func)
    if func.namespace == "aten" and not known and rehearse is not None:
        try:
            rehearse(Op(func), args, kwargs)
        except Exception as here:
            error = here
    name_operation(error, func, args, kwargs)
    return error


def raise_explained(error: Exception, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
    """Raise what :func:`explained` makes of ``error``, which is being handled."""
    shown = explained(error, func, args, kwargs)
    try:
        if shown is error:
            raise
        raise shown from None
    finally:
        del error, shown  # they hold this frame, and the user's tensors


def name_operation(error: BaseException, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note on ``error`` the call that raised it and the user's line."""
    notes = [n for n in getattr(error, "__notes__", ()) if not n.startswith(_NOTE)]
    frames, _ = source.here()
    place = f" at {frames[0].file}:{frames[0].line}" if frames else ""
    error.__notes__ = [*notes, f"{_NOTE}{_name(func)}({', '.join(_texts(args, kwargs))}){place}"]


def _name(func: Any) -> str:
    return str(func._schema.name) if hasattr(func, "_schema") else str(func)


def _texts(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    return [_text(a) for a in args] + [f"{k}={_text(v)}" for k, v in kwargs.items()]


def _text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        try:
            shown = sig(tuple(value.shape), value.dtype).text
        except RuntimeError:  # a nested tensor has no shape
            shown = type(value).__name__
        return shown if value.device.type == "xla" else f"{shown} on {value.device}"
    if isinstance(value, (list, tuple)):
        items = [_text(v) for v in value[:8]] + ["..."] * (len(value) > 8)
        return f"[{', '.join(items)}]"
    return str(value)
