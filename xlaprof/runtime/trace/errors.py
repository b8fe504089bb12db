"""The runtime's own errors, and the note on every error on ``xla`` that names its operation and line.

Messages are PyTorch's wherever it has one (:mod:`xlaprof.runtime.shapes.rehearse`). Refusals of this device alone are
worded here, and are *final*: neither a decomposition nor the CPU is tried for the operation.
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

#: beginning of our notes
_NOTE = "on xla: "


class Foreign(Exception):
    """Another tensor class takes part in the call: ``__torch_dispatch__`` answers ``NotImplemented``."""


def final(error: E) -> E:
    """``error``, marked as the answer: no other way to compute the operation is tried."""
    error._xla_final = True  # type: ignore[attr-defined]
    return error


def is_final(error: BaseException) -> bool:
    """Was ``error`` marked by :func:`final`, or is memory exhausted?"""
    return getattr(error, "_xla_final", False) or isinstance(error, torch.OutOfMemoryError)


def raise_failed(failed: Failed) -> NoReturn:
    """Raise again the error of the computation that failed, for the use of its result."""
    raise final(failed.kind(f"the computation of this tensor failed: {failed.text}"))


def explained(error: Exception, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception:
    """The error to raise where the handler of ``func`` raised ``error``: the CPU's, if the CPU raises one.

    A note names the call and the user's line; among nested calls, the outermost, which is the user's own.
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
    """Raise ``error``, which is being handled, as :func:`explained`."""
    shown = explained(error, func, args, kwargs)
    try:
        if shown is error:
            raise
        raise shown from None
    finally:
        del error, shown  # they hold this frame, and the user's tensors


def name_operation(error: BaseException, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Add a note to ``error``: the call that raised it, and the user's line."""
    notes = [n for n in getattr(error, "__notes__", ()) if not n.startswith(_NOTE)]
    frames, _ = source.here()
    place = f" at {frames[0].file}:{frames[0].line}" if frames else ""
    name = func._schema.name if hasattr(func, "_schema") else func
    given = ", ".join([*map(_text, args), *(f"{k}={_text(v)}" for k, v in kwargs.items())])
    error.__notes__ = [*notes, f"{_NOTE}{name}({given}){place}"]


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
