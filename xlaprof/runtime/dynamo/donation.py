"""Marking tensors for donation by hand: the functions and operators that PyTorch/XLA has for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from xlaprof.runtime import metrics
from xlaprof.runtime.dispatch.handlers import special
from xlaprof.runtime.execution import donors
from xlaprof.runtime.trace.storage import Failed, View
from xlaprof.runtime.trace.tensor import XLATensor

_aliasing = False


def set_buffer_donation(tensor: torch.Tensor, should_donate: bool) -> bool:
    """Mark the buffer of ``tensor`` for donation, or unmark it. ``False`` where it has none: its value is pending."""
    array = _buffer(tensor)
    if array is None:
        return False
    donors.mark(array, should_donate)
    metrics.count("XlaSetBufferDonation")
    return True


def get_buffer_donation(tensor: torch.Tensor) -> bool:
    """Is the buffer of ``tensor`` marked, or was it given up?"""
    return is_marked(tensor) or is_deleted(tensor)


def is_marked(tensor: Any) -> bool:
    """Is the buffer of ``tensor`` marked?"""
    array = _buffer(tensor)
    return array is not None and donors.is_marked(array)


def is_deleted(tensor: Any) -> bool:
    """Was the buffer of ``tensor`` given up?"""
    return type(tensor) is XLATensor and tensor._storage.array is donors.GONE


def _buffer(tensor: Any) -> Any:
    if type(tensor) is not XLATensor or isinstance(tensor._storage, View):
        return None
    storage = tensor._storage
    pending = storage.epoch == storage.tape.epoch and storage.slot not in storage.tape.input_at
    return None if pending or type(storage.array) is Failed else storage.array


@contextmanager
def alias_with_buffer_donor_config(should_alias: bool = True) -> Iterator[bool]:
    """Context in which a graph's hash includes which inputs are marked; yields the previous setting."""
    global _aliasing
    before, _aliasing = _aliasing, should_alias
    try:
        yield before
    finally:
        _aliasing = before


def set_aliasing(on: bool) -> None:
    """See :func:`aliasing`."""
    global _aliasing
    _aliasing = on


def aliasing() -> bool:
    """Are marked inputs part of a graph's hash?"""
    return _aliasing


# -- torch.ops.xla.dynamo_set_buffer_donor_(tensor, True), which can be compiled ------------------------

_library: torch.library.Library | None = None


def define_operators() -> None:
    """Define ``torch.ops.xla.dynamo_set_buffer_donor_``, also under its older name without the underscore."""
    global _library
    if _library is not None:
        return
    _library = torch.library.Library("xla", "FRAGMENT")
    for name in ("dynamo_set_buffer_donor_", "dynamo_set_buffer_donor"):
        _library.define(f"{name}(Tensor t, bool should_donate) -> Tensor")
        # No effect on other devices. It returns a new tensor: PyTorch forbids custom operators that return aliases.
        _library.impl(name, lambda t, should_donate: t.clone(), "CompositeExplicitAutograd")
        _library.impl(name, lambda t, should_donate: torch.empty_like(t), "Meta")
        torch.fx.node.has_side_effect(getattr(torch.ops.xla, name).default)


@special("xla.dynamo_set_buffer_donor_.default", "xla.dynamo_set_buffer_donor.default")
def _set_donor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor, should_donate = args
    tape = tensor._storage.tape
    if tape.abstract:  # in a compiled graph: the program donates it
        metrics.count("XlaSetBufferDonation")
        (tape.donors.add if should_donate else tape.donors.discard)(id(tensor._storage))
    else:
        set_buffer_donation(tensor, should_donate)
    return tensor.clone()
