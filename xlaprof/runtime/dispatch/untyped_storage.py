"""Storage as PyTorch's users see it: strides over it, handles that move to another storage, size and identity.

A base ``storage.Storage`` has as many bytes as its value, in order. PyTorch's operations on storage (``as_strided``,
``resize_``, ``set_``, in-place ``t_``) become views of it: an offset and strides are slices, reshapes and permutations
where possible, else a gather.

There is no memory to point to: a value that was recorded has none yet, and one that was computed moves at every
barrier. ``data_ptr()`` returns an *identity*: two tensors have overlapping ranges exactly when their storages overlap,
and no range is given twice. It lies where no memory is ever mapped, so code that dereferences it ends at once.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, cast
from weakref import WeakValueDictionary, ref

import torch

from xlaprof.runtime.trace.ops import Op
from xlaprof.runtime.trace.storage import NOWHERE, Storage, View, base_of, sig
from xlaprof.runtime.trace.tensor import Allowed, XLATensor, handle, make, method, question

from . import handlers
from .handlers import special
from .types import Args, Handler, Kwargs

aten = torch.ops.aten

_as_strided = handlers.view(Op(aten.as_strided.default))
_slice = handlers.view(Op(aten.slice.Tensor))
_view = handlers.view(Op(aten.view.default))
_view_dtype = handlers.view(Op(aten.view.dtype))
_permute = handlers.view(Op(aten.permute.default))


def nbytes(base: Storage) -> int:
    """Size of a storage in bytes."""
    return base.sig.nbytes


# -- strides over a storage ---------------------------------------------------------------------------


def over(base: Storage, dtype: torch.dtype, size: Sequence[int], stride: Sequence[int], offset: int) -> XLATensor:
    """A tensor over the storage ``base``; ``stride`` and ``offset`` are in elements of ``dtype``.

    Raises ``RuntimeError``, as PyTorch does, if it would reach past the storage's end.
    """
    size, stride = tuple(size), tuple(stride)
    _require_within(base, dtype, size, stride, offset)
    shown = _elements(base, dtype)
    order = _dense_order(size, stride)
    if order is None:
        shown = _as_strided((shown, size, stride, offset), {})
    else:
        count = math.prod(size)
        if count != shown.shape[0]:
            start = offset if count else 0
            shown = _slice((shown, 0, start, start + count), {})
        if len(size) != 1:
            shown = _view((shown, tuple(size[d] for d in order)), {})
        if order != sorted(order):
            shown = _permute((shown, tuple(order.index(d) for d in range(len(order)))), {})
    if shown.stride() == stride and shown.storage_offset() == offset:
        return shown
    storage = shown._storage
    exact = make(XLATensor, size, stride, offset, None, dtype, torch.strided, storage.tape.torch_device)
    exact._storage = storage
    return exact


def _elements(base: Storage, dtype: torch.dtype) -> XLATensor:
    """The whole storage as a vector of ``dtype``, without trailing bytes that do not fill an element."""
    flat = handle(base)
    if len(base.sig.shape) != 1:
        flat = _view((flat, (-1,)), {})
    if base.sig.dtype is dtype:
        return flat
    count = nbytes(base) // dtype.itemsize
    fitting = count * dtype.itemsize // base.sig.dtype.itemsize
    if fitting != flat.shape[0]:
        flat = _slice((flat, 0, 0, fitting), {})
    return _view_dtype((flat, dtype), {})  # type: ignore[no-any-return]


def _dense_order(size: tuple[int, ...], stride: tuple[int, ...]) -> list[int] | None:
    """The dimensions, slowest first, if they cover a range without gap or overlap, else ``None``."""
    order = list(range(len(size)))
    if 0 in size:
        return order
    for candidate in (order, sorted(order, key=lambda d: (size[d] == 1, -stride[d]))):
        step = 1
        for d in reversed(candidate):
            if size[d] != 1 and stride[d] != step:
                break
            step *= size[d]
        else:
            return candidate
    return None


def _require_within(base: Storage, dtype: torch.dtype, size: Sequence[int], stride: Sequence[int], offset: int) -> None:
    if len(size) != len(stride):
        raise RuntimeError("mismatch in length of strides and shape")
    if any(n < 0 for n in size):
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(size)}: {list(size)}")
    if any(s < 0 for s in stride):
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got strides: {list(stride)}")
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    if 0 in size:
        return
    needed = (1 + offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))) * dtype.itemsize
    if needed > nbytes(base):
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and itemsize "
            f"{dtype.itemsize} requiring a storage size of {needed} are out of bounds for storage of size "
            f"{nbytes(base)}"
        )


@special("aten.as_strided.default")
def as_strided(args: Args, kwargs: Kwargs) -> Any:
    """``as_strided``: strides over the storage, whatever view of it the tensor is."""
    tensor, size, stride, *rest = args
    offset = rest[0] if rest else kwargs.get("storage_offset")
    offset = tensor.storage_offset() if offset is None else offset
    return over(base_of(tensor._storage), tensor.dtype, size, stride, offset)


# -- handles that move --------------------------------------------------------------------------------


def become(tensor: XLATensor, other: XLATensor) -> XLATensor:
    """Make ``tensor`` a handle on the storage of ``other``, with its shape; return it."""
    torch.Tensor.data.__set__(tensor, other)  # type: ignore[attr-defined]
    tensor._storage = other._storage
    return tensor


def _in_place(view: torch._ops.OpOverload) -> Handler:
    """The handler of ``t_`` for ``t``: the storage stays as it is, the tensor shows it differently."""

    def record(args: Args, kwargs: Kwargs) -> Any:
        if question.open:
            raise Allowed
        return become(args[0], view(*args, **kwargs))

    return record


for _name, _overload in {
    "t_.default": aten.t.default,
    "transpose_.default": aten.transpose.int,
    "unsqueeze_.default": aten.unsqueeze.default,
    "squeeze_.default": aten.squeeze.default,
    "squeeze_.dim": aten.squeeze.dim,
    "squeeze_.dims": aten.squeeze.dims,
    "as_strided_.default": aten.as_strided.default,
}.items():
    special(f"aten.{_name}")(_in_place(_overload))


@special("aten.set_.default")
def set_nothing(args: Args, kwargs: Kwargs) -> Any:
    """``a.set_()``: a handle on a new, empty storage."""
    (tensor,) = args
    return become(tensor, handle(Storage(tensor._storage.tape, sig((0,), tensor.dtype), 0, NOWHERE, 0)))


@special("aten.set_.source_Tensor")
def set_tensor(args: Args, kwargs: Kwargs) -> Any:
    """``a.set_(b)``: a handle on the other's storage, with its shape."""
    tensor, source = args
    _require_ours(source)
    if tensor.dtype is not source.dtype:
        raise RuntimeError(f"Could not set tensor of type {source.dtype} to a tensor of type {tensor.dtype}")
    return become(tensor, handle(source._storage, source))


@special("aten.set_.source_Storage", "aten.set_.source_Storage_storage_offset")
def set_storage(args: Args, kwargs: Kwargs) -> Any:
    """``a.set_(b.untyped_storage(), offset, size, stride)``: a handle on the other's storage, of any shape."""
    tensor, storage, *rest = args
    _require_ours(storage)
    base = storage.base(tensor.dtype, tuple(rest[1]) if rest else None)
    if not rest:
        rest = [0, (nbytes(base) // tensor.dtype.itemsize,)]
    offset, size, *strides = rest
    contiguous = torch.empty(size, device="meta").stride()
    stride = strides[0] if strides and strides[0] else contiguous
    if (offset, *size) == (0, *base.sig.shape) and tuple(stride) == contiguous and base.sig.dtype is tensor.dtype:
        return become(tensor, handle(base))
    if 0 not in size:
        last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
        base = _roomy(base, (last + 1) * tensor.dtype.itemsize)
    return become(tensor, over(base, tensor.dtype, size, stride, offset))


def _require_ours(source: Any) -> None:
    if not isinstance(source, (XLATensor, XLAStorage)):
        raise RuntimeError(
            f'Attempted to set the storage of a tensor on device "xla" to a storage on different device '
            f'"{source.device}".  This is no longer allowed; the devices must match.'
        )


@special("aten.is_set_to.default")
def is_set_to(args: Args, kwargs: Kwargs) -> bool:
    """Do both show the same elements of one storage, in the same shape?"""
    a, b = args
    return (
        type(b) is XLATensor
        and base_of(a._storage) is base_of(b._storage)
        and a.storage_offset() == b.storage_offset()
        and a.shape == b.shape
        and a.stride() == b.stride()
    )


# -- sizes that change --------------------------------------------------------------------------------


@special("aten.resize_.default")
def resize_(args: Args, kwargs: Kwargs) -> Any:
    """``resize_``: the storage stays, and grows if it has to; other tensors on it keep it."""
    tensor, size = args[0], tuple(args[1])
    memory_format = kwargs.get("memory_format")
    if any(n < 0 for n in size):
        raise RuntimeError(f"numel: integer multiplication overflow (resize_ to {list(size)})")
    if tuple(tensor.shape) == size and memory_format is None:
        return tensor
    stride = torch.empty(size, device="meta", memory_format=memory_format or torch.contiguous_format).stride()
    offset, dtype, base = tensor.storage_offset(), tensor.dtype, base_of(tensor._storage)
    count = math.prod(size)
    if count > math.prod(base.sig.shape) and offset == 0 and dtype is base.sig.dtype and memory_format is None:
        return become(tensor, handle(_grown(base, size)))
    if count:
        base = _roomy(base, (offset + count) * dtype.itemsize)
    return become(tensor, over(base, dtype, size, stride, offset))


@special("aten.resize_as_.default")
def resize_as_(args: Args, kwargs: Kwargs) -> Any:
    """``resize_`` to the shape, and with ``preserve_format`` the memory format, of another tensor."""
    tensor, template = args
    memory_format = kwargs.get("memory_format")
    if memory_format is torch.preserve_format:
        memory_format = torch._prims_common.suggest_memory_format(template)
    return resize_((tensor, template.shape), {"memory_format": memory_format})


def _roomy(base: Storage, size: int) -> Storage:
    """A storage of at least ``size`` bytes: ``base``, or the larger one that replaces it."""
    return base if size <= nbytes(base) else _grown(base, (-(-size // base.sig.dtype.itemsize),))


def _grown(base: Storage, shape: tuple[int, ...]) -> Storage:
    """A storage of ``shape`` that begins with ``base``'s elements and replaces it in all tensors and views."""
    tape = base.tape
    size, dtype = math.prod(base.sig.shape), base.sig.dtype
    if size == 0 or (base.array is None and base.epoch != tape.epoch):
        grown = Storage(tape, sig(shape, dtype), 0, NOWHERE, 0)
    else:
        values = aten.zeros.default(shape, dtype=dtype, device=tape.torch_device)
        _slice((_view((values, (-1,)), {}), 0, 0, size), {}).copy_(_elements(base, dtype))
        grown = values._storage
    # PyTorch's tensors share a storage that grows; ours hold the old storage, and must move.
    holders = gc.get_referrers(base)
    views = [view for weak in base.views or () if (view := weak()) is not None]
    start = over(grown, dtype, base.sig.shape, torch.empty(base.sig.shape, device="meta").stride(), 0)._storage
    assert isinstance(start, View)
    with tape.lock:
        for holder in holders:
            if type(holder) is XLATensor and holder._storage is base:
                holder._storage = start
        for handed in list(_handed_out.values()):
            if handed.__dict__.get("storage") is base:
                handed.storage = grown
        for view in views:
            view.base, view.steps, view.epoch = grown, start.steps + view.steps, NOWHERE
            _show(grown, view)
    return grown


# -- identity -----------------------------------------------------------------------------------------

#: no user's memory on x86-64 or arm64 is at such an address
_FIRST_ADDRESS = 1 << 52
_ALIGNMENT = 512
_next_address = _FIRST_ADDRESS


def address(base: Storage) -> int:
    """Where the storage ``base`` begins, in a space of identities: not memory. 0 for an empty one."""
    global _next_address
    size = nbytes(base)
    if size and not base.address:
        base.address = _next_address
        _next_address += -(-size // _ALIGNMENT) * _ALIGNMENT
    return base.address


@method("data_ptr")
def data_ptr(tensor: XLATensor) -> int:
    """An identity, not an address: tensors have overlapping ranges exactly when they share storage."""
    start = address(base_of(tensor._storage)) if tensor.numel() else 0
    return start and start + int(tensor.storage_offset()) * tensor.element_size()


class XLAStorage(torch.UntypedStorage):
    """What ``tensor.untyped_storage()`` returns: the identity and size of a storage on ``xla``, and no memory."""

    storage: Storage

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.storage.tape.torch_device  # type: ignore[no-any-return]

    @property
    def _cdata(self) -> int:
        return id(self.storage)

    def base(self, dtype: torch.dtype, size: tuple[int, ...] | None) -> Storage:
        """The storage on which a tensor of ``dtype`` and ``size`` becomes a handle."""
        return self.storage

    def data_ptr(self) -> int:
        return address(self.storage)

    def nbytes(self) -> int:
        return nbytes(self.storage) if "storage" in self.__dict__ else super().nbytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, XLAStorage) and other.storage is self.storage

    def __hash__(self) -> int:
        return id(self.storage)

    def __repr__(self) -> str:
        return f"[{type(self).__name__}(device={self.device}) of size {self.nbytes()}]"

    __str__ = __repr__

    def cpu(self) -> torch.UntypedStorage:
        """A copy of the bytes on the host."""
        return handle(self.storage).cpu().untyped_storage()

    def is_shared(self) -> bool:
        return False

    def is_pinned(self, device: Any = "cuda") -> bool:
        return False

    def share_memory_(self) -> XLAStorage:
        return self

    def resize_(self, size: int) -> Any:
        raise NotImplementedError(
            f"the storage of a tensor on {self.device} has no memory of its own to resize to {size} bytes: "
            "resize the tensor, tensor.resize_(...), or delete it to free its memory"
        )


@method("untyped_storage")
def storage_of(tensor: XLATensor) -> XLAStorage:
    """The identity and size of the storage: equal for tensors that share it. Its memory is not available."""
    base = base_of(tensor._storage)
    # "meta": a storage with a size and no memory.
    made = torch.UntypedStorage.__new__(XLAStorage, nbytes(base), device="meta")  # type: ignore[call-arg]
    made.storage = base
    _handed_out[id(made)] = made
    return made


_handed_out: WeakValueDictionary[int, XLAStorage] = WeakValueDictionary()


@method("__deepcopy__")
def __deepcopy__(tensor: XLATensor, memo: dict[int, Any]) -> torch.Tensor:
    """``copy.deepcopy(tensor)``. Raises ``RuntimeError`` unless it is a leaf, as PyTorch does."""
    if id(tensor) in memo:
        return cast(torch.Tensor, memo[id(tensor)])
    if not tensor.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
            "moment.  If you were attempting to deepcopy a module, this may be because of a "
            "torch.nn.utils.weight_norm usage, see https://github.com/pytorch/pytorch/pull/103001"
        )
    if getattr(tensor, "_is_param", False):  # PyTorch copies only the value of a parameter
        copy: torch.Tensor = torch.nn.Parameter(tensor.detach().clone(), tensor.requires_grad)
        copy._storage.sharding = tensor._storage.sharding  # type: ignore[attr-defined]
    else:
        with torch.no_grad():
            copy = _copy_with_storage(tensor, memo)
        copy.requires_grad_(tensor.requires_grad)
        if tensor.grad is not None:
            copy.grad = tensor.grad.__deepcopy__(memo)
        copy.__dict__.update(deepcopy(tensor.__dict__, memo))
    memo[id(tensor)] = copy
    return copy


def _copy_with_storage(tensor: XLATensor, memo: dict[int, Any]) -> XLATensor:
    """A copy of ``tensor``; copies that share one ``memo`` share storage as their originals do."""
    storage = tensor._storage
    base = base_of(storage)
    copied = memo.get(id(base))
    if copied is None:
        copied = memo[id(base)] = aten.clone.default(handle(base))._storage
        copied.sharding = base.sharding
    if not isinstance(storage, View):
        return handle(copied)
    shown = View(storage.tape, storage.sig, 0, NOWHERE, 0, base=copied, steps=storage.steps)
    with storage.tape.lock:
        _show(copied, shown)
    return handle(shown, tensor)


def _show(base: Storage, view: View) -> None:
    """Register ``view`` with its ``base``. The tape's lock is held."""
    if base.views is None:
        base.views = []
    base.views.append(ref(view))
    base.tape.viewed.append(base)
