"""``torch.save``, ``torch.load`` and ``pickle`` of tensors on ``xla``: by storage, as for every other device.

PyTorch writes a storage once, however many tensors share it, tagged with its device. So tied weights and views are
still tied when they are loaded, ``map_location`` works in all its forms, and a file loads with ``map_location="cpu"``
where there is no ``xla``. Files of PyTorch/XLA, which saves each tensor by itself, load too.

A storage from a file is bytes. The first tensor made from it decides the dtype and shape of the storage on the device.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from typing import Any, cast
from weakref import WeakSet

import torch
from torch.utils.hooks import warn_if_has_hooks

from xlaprof.runtime.dispatch.untyped_storage import XLAStorage, storage_of
from xlaprof.runtime.execution import reads
from xlaprof.runtime.tape import tapes
from xlaprof.runtime.trace.storage import NOWHERE, Storage, View, sig
from xlaprof.runtime.trace.tensor import XLATensor, method
from xlaprof.runtime.transfer import host

#: after PyTorch's own (10 to 26), none of which knows the device; priorities must differ
_PRIORITY = 30

#: views that no offset and strides describe
_NUMBERS = {"aten._conj.default", "aten._neg_view.default"}

#: storages handed to a pickler and not read yet
_given: WeakSet[SavedStorage] = WeakSet()


@method("__reduce_ex__")
def reduce(tensor: XLATensor, protocol: Any = None) -> tuple[Any, ...]:
    """Pickle ``tensor`` in terms of PyTorch's own functions, so that reading it needs no code of ours."""
    warn_if_has_hooks(tensor)
    parameter = getattr(tensor, "_is_param", False)
    state = {name: value for name, value in tensor.__dict__.items() if name != "_is_param"}
    hooks: OrderedDict[Any, Any] = OrderedDict()
    if parameter:
        if state:
            return torch._utils._rebuild_parameter_with_state, (tensor.detach(), tensor.requires_grad, hooks, state)
        return torch._utils._rebuild_parameter, (tensor.detach(), tensor.requires_grad, hooks)
    plain = tensor.detach()
    if _changes_values(tensor):
        plain = plain.clone()
    place = plain.storage_offset(), tuple(plain.size()), plain.stride(), tensor.requires_grad, hooks
    storage = SavedStorage.of(cast(XLATensor, plain))
    rebuild: Any
    args: tuple[Any, ...]
    if tensor.dtype in torch.storage._new_dtypes():  # those without a class of storage travel as bytes
        rebuild, args = torch._utils._rebuild_tensor_v3, (_typed(storage, torch.uint8), *place, tensor.dtype)
    else:
        rebuild, args = torch._utils._rebuild_tensor_v2, (_typed(storage, tensor.dtype), *place)
    if state:
        return torch._tensor._rebuild_from_type_v2, (rebuild, torch.Tensor, args, state)
    return rebuild, args


def _changes_values(tensor: XLATensor) -> bool:
    """Is ``tensor`` a conjugated or negated view of its storage?"""
    storage = tensor._storage
    return isinstance(storage, View) and any(step.op is not None and step.op.name in _NUMBERS for step in storage.steps)


def _typed(storage: XLAStorage, dtype: torch.dtype) -> torch.TypedStorage:
    return torch.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


class SavedStorage(XLAStorage):
    """A storage handed to a pickler. Reading the first computes all pending ones, as one graph."""

    @classmethod
    def of(cls, tensor: XLATensor) -> SavedStorage:
        storage = storage_of(tensor)
        storage.__class__ = cls
        assert isinstance(storage, SavedStorage)
        _given.add(storage)
        return storage

    def cpu(self) -> torch.UntypedStorage:
        """A copy of the bytes on the host."""
        tape = self.storage.tape
        pending = list(
            {
                id(s.storage): s.storage for s in _given if s.storage.tape is tape and s.storage.epoch == tape.epoch
            }.values()
        )
        if pending:
            for storage, array in zip(pending, reads.values(tape, pending, (), "save"), strict=True):
                reads.materialize(tape, storage, array)
        _given.discard(self)
        return super().cpu()

    def _write_file(self, file: Any, is_real_file: bool, save_size: bool, element_size: int) -> None:
        self.cpu()._write_file(file, is_real_file, save_size, element_size)


class LoadedStorage(XLAStorage):
    """A storage on its way from a file to the device."""

    bytes: torch.UntypedStorage
    tape: Any

    @classmethod
    def of(cls, read: torch.UntypedStorage, tape: Any) -> LoadedStorage:
        make: Any = torch.UntypedStorage.__new__
        storage = cast(LoadedStorage, make(cls, read.nbytes(), device="meta"))
        storage.bytes, storage.tape = read, tape
        return storage

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.tape.torch_device  # type: ignore[no-any-return]

    def data_ptr(self) -> int:
        return self.bytes.data_ptr()  # only compared with 0

    def base(self, dtype: torch.dtype, size: tuple[int, ...] | None) -> Storage:
        """The storage on the device: made at the first call, of ``dtype``, and of ``size`` if that covers it."""
        if "storage" not in self.__dict__:
            count = self.bytes.nbytes() // dtype.itemsize
            shape = size if size is not None and math.prod(size) == count else (count,)
            self.storage = Storage(self.tape, sig(tuple(shape), dtype), 0, NOWHERE, 0)
            self._fill()
        return self.storage

    def _fill(self) -> None:
        shape, dtype = self.storage.sig.shape, self.storage.sig.dtype
        value = torch.empty(0, dtype=dtype).set_(self.bytes, 0, shape)  # type: ignore[call-overload]
        host.fill(self.tape, self.storage, value)

    def _set_from_file(self, file: Any, offset: int | None, is_real_file: bool, element_size: int) -> LoadedStorage:
        # In the older format the values come after the objects made of them.
        self.bytes._set_from_file(file, offset, is_real_file, element_size)
        if "storage" in self.__dict__:
            self._fill()
        return self


def _tag(storage: Any) -> str | None:
    return str(storage.device) if storage.device.type == "xla" else None


def _restore(storage: Any, location: str) -> LoadedStorage | None:
    """The storage on the device that ``location`` names (``xla``, ``xla:1``); ``None`` for another's."""
    named = re.fullmatch(r"xla(?::(\d+))?", location)
    if named is None:
        return None
    index = int(named[1]) if named[1] else None
    if index is not None and index >= tapes.count():
        raise RuntimeError(
            f"Attempting to deserialize object on {location}, but this process has {tapes.count()} xla device(s). "
            'Use torch.load(..., map_location="xla") to load it onto the current one, or map_location="cpu".'
        )
    return LoadedStorage.of(storage, tapes.tape(index))


def install() -> None:
    """Register the device with ``torch.save`` and ``torch.load``."""
    torch.serialization.register_package(_PRIORITY, _tag, _restore)
