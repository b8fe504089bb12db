"""Threads of PyTorch's autograd engine for the ``xla`` devices.

The engine runs a backward pass with one thread per device, and counts devices once: when the first backward pass of the
process begins. A device guard in Python breaks this in two ways. It always counts one device, because torch does not
ask Python for the number: :func:`count_devices` replaces ``deviceCount`` in a copy of its table of virtual functions.
And a pass before :mod:`xlaprof.runtime` was imported has counted no device: :func:`start_threads` calls the engine's
own function that starts its device threads.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from typing import Any

import torch

from xlaprof.runtime.tape import tapes

from . import device_guard

#: declares the guard's virtual functions; the order of the declarations is that of the table
_HEADER = os.path.join(os.path.dirname(torch.__file__), "include/c10/core/impl/DeviceGuardImplInterface.h")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_VIRTUAL = re.compile(r"\bvirtual\s[^;{]*?(~?\w+)\s*\(")

_DEVICE_COUNT = ctypes.CFUNCTYPE(ctypes.c_int8, ctypes.c_void_p)
#: Itanium C++ ABI: a table's first function is preceded by the offset to the top and the type's description
_BEFORE = 2

_kept: list[Any] = []  # C++ holds bare pointers to these


def _count(guard: int) -> int:
    try:
        return min(tapes.count(), 127)
    except RuntimeError:  # no device is available: making a tensor raises this
        return 1


def virtual_functions(header: str) -> list[str]:
    """Names of the virtual functions of the class that ``header`` (C++ text) declares first, in their order."""
    text = _COMMENT.sub("", header)
    body = text[text.index("DeviceGuardImplInterface {") :]
    return _VIRTUAL.findall(body[: body.index("\n};")])


def count_devices() -> bool:
    """Let the device guard count as many devices as there are. ``False`` where torch's header or ABI are not known.

    The engine has a thread for ``xla:0`` only then, and a backward pass on another device raises ``RuntimeError``.
    """
    if sys.platform == "win32" or not os.path.exists(_HEADER):
        return False
    with open(_HEADER, encoding="utf-8") as file:
        names = virtual_functions(file.read())
    if "deviceCount" not in names:
        return False
    guard = device_guard.registry()[device_guard.XLA]
    pointer = ctypes.c_void_p.from_address(guard)
    assert pointer.value is not None
    size = _BEFORE + len(names) + 1  # a virtual destructor is two functions
    table = (ctypes.c_void_p * size).from_address(pointer.value - _BEFORE * ctypes.sizeof(ctypes.c_void_p))
    place = _BEFORE + names.index("deviceCount")
    if _DEVICE_COUNT(table[place] or 0)(guard) != 1:
        return False
    ours, function = (ctypes.c_void_p * size)(*table), _DEVICE_COUNT(_count)
    ours[place] = ctypes.cast(function, ctypes.c_void_p).value
    _kept.extend((ours, function))
    pointer.value = ctypes.addressof(ours) + _BEFORE * ctypes.sizeof(ctypes.c_void_p)
    return True


def start_threads() -> bool:
    """Start the engine's device threads where it has none (only then!). ``False`` if this torch has no such symbol."""
    library = ctypes.CDLL(torch._C.__file__)  # and the libraries that it needs
    try:
        default = library["_ZN5torch8autograd6Engine18get_default_engineEv"]
        start = library["_ZN5torch8autograd6Engine20start_device_threadsEv"]
    except AttributeError:
        return False
    default.restype = ctypes.c_void_p
    start.argtypes, start.restype = [ctypes.c_void_p], None
    start(default())
    return True
