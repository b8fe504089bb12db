"""``torch_xla.utils.utils``, customarily ``xu``: made-up data, nested containers, environment variables, timing."""

from __future__ import annotations

import contextlib
import copy
import os
import shutil
import socket
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any

import torch

from xlaprof.runtime.trace import nested
from xlaprof.runtime.trace.nested import DataWrapper as DataWrapper


class _Generator:
    """Yields :meth:`_item` ``count`` times, and again for each new iterator."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._emitted = 0

    def __iter__(self) -> Any:
        other = copy.copy(self)
        other._emitted = 0
        return other

    def __len__(self) -> int:
        return self._count

    def __next__(self) -> Any:
        return self.next()

    def next(self) -> Any:
        """The next item, or ``StopIteration``."""
        if self._emitted >= self._count:
            raise StopIteration
        self._emitted += 1
        return self._item()

    def _item(self) -> Any:
        raise NotImplementedError


class SampleGenerator(_Generator):
    """``data``, repeated ``sample_count`` times, in place of a ``DataLoader``."""

    def __init__(self, data: Any, sample_count: int) -> None:
        super().__init__(sample_count)
        self._data = data

    def _item(self) -> Any:
        return self._data


class FnDataGenerator(_Generator):
    """``count`` pairs ``(x, func(x))`` of ``x = gen_tensor(batch_size, *dims)``."""

    def __init__(
        self,
        func: Callable[[Any], Any],
        batch_size: int,
        gen_tensor: Callable[..., torch.Tensor],
        dims: Sequence[int] | None = None,
        count: int = 1,
    ) -> None:
        super().__init__(count)
        self._func = func
        self._shape = (batch_size, *(dims or [1]))
        self._gen_tensor = gen_tensor

    def _item(self) -> Any:
        data = self._gen_tensor(*self._shape)
        return data, self._func(data)


class LazyProperty:
    """``value`` is ``gen_fn()``, called at first use."""

    def __init__(self, gen_fn: Callable[[], Any]) -> None:
        self._gen_fn: Callable[[], Any] | None = gen_fn
        self._value: Any = None

    @property
    def value(self) -> Any:
        """The result of ``gen_fn()``."""
        if self._gen_fn is not None:
            self._value, self._gen_fn = self._gen_fn(), None
        return self._value


class TmpFolder:
    """A temporary folder, ``name``, deleted with this object."""

    def __init__(self) -> None:
        self.name = tempfile.mkdtemp()
        weakref.finalize(self, shutil.rmtree, self.name, ignore_errors=True)


def as_list(t: Any) -> Any:
    """``t`` if it is a list or tuple, ``[t]`` otherwise."""
    return t if isinstance(t, (tuple, list)) else [t]


def getenv_as(name: str, type: Callable[[Any], Any], defval: Any = None) -> Any:
    """The environment variable converted by ``type`` (``bool`` of a number), or ``defval``."""
    env = os.environ.get(name)
    if env is None:
        return defval
    return bool(int(env)) if type is bool else type(env)


def check_env_flag(name: str, default: str = "") -> bool:
    """Is the environment variable ``true`` or a number above 0?"""
    flag = os.environ.get(name, default)
    return flag == "true" or (flag.isdigit() and int(flag) > 0)


def for_each_instance(value: Any, select_fn: Callable[[Any], bool], fn: Callable[[Any], Any]) -> None:
    """Call ``fn`` with each object in nested containers that ``select_fn`` selects, once."""
    for item in nested.found(value, select_fn):
        fn(item)


def for_each_instance_rewrite(value: Any, select_fn: Callable[[Any], bool], fn: Callable[[Any], Any]) -> Any:
    """``value`` with the objects that ``select_fn`` selects replaced by ``fn(object)``."""
    return nested.rewritten(value, select_fn, fn)


def shape(inputs: Any) -> list[int]:
    """Lengths of nested lists, which agree: ``shape([[1, 2, 3], [4, 5, 6]]) == [2, 3]``."""
    if not isinstance(inputs, (list, tuple)):
        return []
    shapes = [shape(item) for item in inputs]
    if any(one != shapes[0] for one in shapes):
        raise AssertionError(f"lists of unlike shapes: {shapes}")
    return [len(inputs), *(shapes[0] if shapes else [])]


def flatten_nested_tuple(inputs: Any) -> tuple[Any, ...]:
    """The leaves of nested lists and tuples, as one tuple."""
    if isinstance(inputs, (list, tuple)):
        return tuple(leaf for item in inputs for leaf in flatten_nested_tuple(item))
    return (inputs,)


def list_copy_append(ilist: Sequence[Any], item: Any) -> list[Any]:
    """``[*ilist, item]``."""
    return [*ilist, item]


def null_print(*args: Any, **kwargs: Any) -> None:
    """Print nothing."""


def eprint(*args: Any, **kwargs: Any) -> None:
    """Print to stderr."""
    print(*args, file=sys.stderr, **kwargs)


def get_print_fn(debug: int | None = None) -> Callable[..., None]:
    """:func:`eprint` where ``debug``, or the variable ``DEBUG``, is not 0; :func:`null_print` otherwise."""
    return eprint if (int(os.environ.get("DEBUG", "0")) if debug is None else debug) else null_print


def timed(fn: Callable[[], Any], msg: str = "", printfn: Callable[..., None] | None = eprint) -> Any:
    """``fn()``; how long it took is printed after ``msg``."""
    with TimedScope(msg, printfn):
        return fn()


class TimedScope:
    """Context that prints how long it took after ``msg``, unless :meth:`set_error` was called."""

    def __init__(self, msg: str = "", printfn: Callable[..., None] | None = eprint) -> None:
        self._msg = msg
        self._printfn = printfn if printfn is not None else get_print_fn()
        self._error: Any = None

    def __enter__(self) -> TimedScope:
        self._start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        if self._error is None:
            self._printfn(f"{self._msg}{1000.0 * (time.perf_counter() - self._start):.3f}ms")

    def set_error(self, error: Any) -> None:
        """Print nothing at the end."""
        self._error = error


def get_free_tcp_ports(n: int = 1) -> list[int]:
    """``n`` ports that are free now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for one in sockets:
            one.bind(("", 0))
        return [one.getsockname()[1] for one in sockets]


def parallel_work(num_workers: int, fn: Callable[..., Any], *args: Any) -> list[Any]:
    """``list(map(fn, *args))``, in threads. Raises what ``fn`` raised."""
    with futures.ThreadPoolExecutor(max_workers=num_workers) as executor:
        return list(executor.map(fn, *args))
