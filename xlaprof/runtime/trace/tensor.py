"""The tensor on ``xla``: a wrapper subclass whose calls reach the runtime below autograd."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import local
from typing import Any, TypeVar, cast

import torch

from .errors import Foreign, raise_explained
from .storage import Storage, View, base_of
from .trie import Out

M = TypeVar("M", bound=Callable[..., Any])

make = torch.Tensor._make_wrapper_subclass
in_inference_mode = torch.is_inference_mode_enabled


def make_normal(*args: Any) -> Any:
    """:data:`make`, for a view of a normal tensor, which is one in inference mode too: they share a version counter."""
    with torch.inference_mode(False):
        return make(*args)


#: id of an overload -> its handler; overloads live as long as the process
HANDLERS: dict[int, Any] = {}
#: the table that the dispatch function uses; in eager mode its handlers also run what they have recorded
current: dict[int, Any] = HANDLERS
#: makes eager mode's handler of an ordinary one; None in lazy mode
at_once: Callable[[Any], Any] | None = None

#: makes the handler of an operator that is called for the first time; :mod:`xlaprof.runtime.dispatch.handlers` sets it
make_handler: Any = None


def look_in(handlers: dict[int, Any], make: Callable[[Any], Any] | None) -> None:
    """Set the dispatch function's table. Another function would make Python drop its caches for the class."""
    global current, at_once
    current, at_once = handlers, make


def _unknown(func: Any) -> Any:
    """The handler of an operator that is called for the first time."""
    handler = HANDLERS.get(id(func)) or make_handler(func)
    if at_once is not None:
        handler = current[id(func)] = at_once(handler)
    return handler


def _dispatch(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    handler = current.get(id(func))
    if handler is None:
        handler = _unknown(func)
    try:
        return handler(args, {} if kwargs is None else kwargs)
    except Foreign:
        return NotImplemented
    except Exception as error:
        raise_explained(error, func, args, kwargs or {})


#: functions used as ``__torch_dispatch__``: Dynamo skips them
dispatchers: list[Callable[..., Any]] = [_dispatch]


class XLATensor(torch.Tensor):
    """A tensor on ``torch.device("xla")``: a handle on a :class:`~xlaprof.runtime.trace.storage.Storage`.

    Methods that need a later room (printing, copies, DLPack, pickle) are defined there (:func:`method`).
    """

    __slots__ = ("_storage",)

    _storage: Storage

    # Staticmethods, not the usual classmethods: one Python object less per operation.
    __torch_dispatch__ = staticmethod(_dispatch)  # type: ignore[assignment]
    # Below autograd only: no override of torch functions.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @property
    def data(self) -> torch.Tensor:
        """The tensor without its history: another handle on the same storage, whose writes autograd does not see."""
        if torch.is_inference_mode_enabled():  # nor anything else's
            return self.detach()
        return cast(torch.Tensor, torch.Tensor.data.__get__(self))  # type: ignore[attr-defined]

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        if not isinstance(value, XLATensor):
            raise RuntimeError(
                "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible tensor "
                f"type: cannot set the data of a tensor on {self.device} to one on {value.device}; "
                f"move it there first: tensor.to({str(self.device)!r})"
            )
        torch.Tensor.data.__set__(self, value)  # type: ignore[attr-defined]
        self._storage = value._storage

    def set_(self, source: Any = None, *place: Any, **named: Any) -> torch.Tensor:
        """As for any device. PyTorch would ask a tensor in C++ for its storage, where ours have none."""
        if isinstance(source, XLATensor) and (place or named):
            source = source.untyped_storage()
        return super().set_(*(() if source is None else (source,)), *place, **named)

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers: one read."""
        return self.detach().cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """As for any device: only ``force=True`` copies to the host by itself. Raises ``TypeError`` otherwise."""
        if not force:
            raise TypeError(
                f"can't convert {self.device} device type tensor to numpy. "
                "Use Tensor.cpu() to copy the tensor to host memory first."
            )
        return self.detach().cpu().numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.numpy()  # raises: numpy gets no silent copies of what is on a device

    def pin_memory(self, device: Any = None) -> torch.Tensor:
        """Raises ``RuntimeError``, as on any device: memory that is pinned is the host's."""
        raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")

    def __format__(self, spec: str) -> str:
        # f"{loss:.3f}" reads the value; PyTorch does so for its own class only.
        if self.dim() == 0:
            return self.item().__format__(spec)
        return object.__format__(self, spec)

    def __coerce_same_metadata_as_tangent__(self, metadata: Any, expected_type: Any = None) -> XLATensor:
        return self


def method(name: str) -> Callable[[M], M]:
    """Decorator: the function becomes the method ``name`` of :class:`XLATensor`. Used at import, before any tensor."""

    def define(function: M) -> M:
        setattr(XLATensor, name, function)
        return function

    return define


def _reshaping(name: str, view: str) -> Any:
    """The method ``t_`` (``name``), for the view operator ``t`` (``view``).

    Autograd keeps how a view is made from its base, to know where later writes through it go. For devices with memory
    that is its strides, which ``t_`` changes. For ``xla`` PyTorch replays view operators, and would replay them without
    ``t_`` and on a base that has changed. So the tensor becomes a view of what it was.
    """
    write = getattr(torch.Tensor, name)

    def method(self: XLATensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        # retain_grad() refers to the tensor weakly, and what is referred to so cannot be swapped
        is_followed = not (self.is_inference() or self.retains_grad) and (
            torch._C._autograd._get_creation_meta(self) == torch._C._autograd.CreationMeta.DEFAULT
            if self._is_view()
            else self.requires_grad and not self.is_leaf and _has_views(self)
        )
        if not is_followed:  # or a write is not allowed: PyTorch raises why
            return cast(torch.Tensor, write(self, *args, **kwargs))
        if self.requires_grad and torch.is_grad_enabled():
            _ask(write, self, *args, **kwargs)
        with torch.enable_grad():
            shown = getattr(self, view)(*args, **kwargs)
        if shown is not self:
            torch._C._swap_tensor_impl(self, shown)
            self._storage, shown._storage = shown._storage, self._storage
        torch.autograd.graph.increment_version(self)
        return self

    method.__name__ = name
    method.__doc__ = f"As for any device: ``{view}`` in place."
    return method


class Allowed(BaseException):
    """Autograd lets this tensor be written to: an answer, not an error."""


class _Question(local):
    #: does this thread only ask whether a write is allowed?
    open = False


question = _Question()


def _ask(write: Callable[..., object], *args: Any, **kwargs: Any) -> None:
    """Raise what autograd raises at ``write``, and do not write.

    Autograd's test depends on whether the ``grad_fn`` of a view was used before, so reading it here would change the
    result.
    """
    question.open = True
    try:
        with suppress(Allowed):
            write(*args, **kwargs)
    finally:
        question.open = False


def _has_views(tensor: XLATensor) -> bool:
    """Is another view of the storage of ``tensor`` alive? ``tensor`` itself is no view to autograd."""
    storage = tensor._storage
    base = base_of(storage)
    return any((view := weak()) is not None and view is not storage for weak in base.views or ())


for _view in ("t", "transpose", "swapdims", "swapaxes", "squeeze", "unsqueeze", "as_strided"):
    setattr(XLATensor, f"{_view}_", _reshaping(f"{_view}_", _view))


def dress(out: Out, storage: Storage) -> XLATensor:
    """A new tensor on ``storage``, with the metadata of ``out``."""
    result = make(
        XLATensor, out.size, out.strides, out.offset, None, out.dtype, torch.strided, storage.tape.torch_device
    )
    result._storage = storage
    return result


def handle(storage: Storage, like: torch.Tensor | None = None) -> XLATensor:
    """A new tensor on ``storage``; with the strides of ``like``, another handle on the same storage."""
    strides = offset = None
    if like is not None and isinstance(storage, View):
        strides, offset = like.stride(), like.storage_offset()
    new = make_normal if like is not None and in_inference_mode() and not like.is_inference() else make
    result = new(
        XLATensor, storage.sig.shape, strides, offset, None, storage.sig.dtype, torch.strided, storage.tape.torch_device
    )
    result._storage = storage
    return cast(XLATensor, result)
