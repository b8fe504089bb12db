"""Makes ``torch.device("xla")`` real: a device guard in XLA's slot, and nothing else.

PyTorch knows the device type ``xla``, its dispatch, autograd and autocast keys. It lacks a *device guard*, which tells
autograd and factories how many devices there are and which is current. torch lets Python implement one
(``torch._C._acc.DeviceGuard``) but registers it for PrivateUse1 only. So the registered pointer is moved to XLA's slot
of c10's registry, and PrivateUse1's slot is restored.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch

#: c10::DeviceType, stable since torch 1.x (c10/core/DeviceType.h)
XLA, _PRIVATEUSE1, _REGISTRY_SIZE = 9, 20, 21
_REGISTRY_SYMBOL = "_ZN3c104impl26device_guard_impl_registryE"

_guard: Any = None  # kept alive for as long as the process: C++ holds a bare pointer


class DeviceUnavailable(RuntimeError):
    """``torch.device("xla")`` is not available; the message says why and what to do."""


def install() -> None:
    """Give PyTorch a working ``xla`` device. Does nothing the second time.

    Raises :class:`DeviceUnavailable` when the real ``torch_xla`` owns the device in this process, or when this
    PyTorch lacks the functions for it.
    """
    global _guard
    if _guard is not None:
        return
    if "torch_xla" in sys.modules:
        raise DeviceUnavailable(
            "torch_xla is already imported and owns torch.device('xla'): "
            "use one of the two in a process (import xlaprof.runtime without importing torch_xla)"
        )
    try:
        base = torch._C._acc.DeviceGuard
        register = torch._C._acc.register_python_privateuseone_device_guard
        guards = registry()
    except (AttributeError, OSError, ValueError) as error:
        raise DeviceUnavailable(
            f"torch {torch.__version__} has no Python device guard ({error}): install torch 2.11 to 2.15"
        ) from error
    if guards[XLA]:
        raise DeviceUnavailable("another library has registered an xla device guard in this process: remove it")

    class Guard(base):  # type: ignore[misc, valid-type]
        def type_(self) -> Any:
            return torch._C._autograd.DeviceType.XLA

    _guard = Guard()
    before = guards[_PRIVATEUSE1]
    register(_guard)
    guards[XLA], guards[_PRIVATEUSE1] = guards[_PRIVATEUSE1], before
    sys.meta_path.insert(0, _RefuseTorchXla())


def registry() -> Any:
    """c10's device guards: the address of each by device type, ``None`` where there is none.

    Raises ``OSError``, ``AttributeError`` or ``ValueError`` where this PyTorch has no such registry.
    """
    library = ctypes.CDLL(torch._C.__file__)  # and the libraries that it needs
    return (ctypes.c_void_p * _REGISTRY_SIZE).in_dll(library, _REGISTRY_SYMBOL)


class _RefuseTorchXla(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Refuses a later import of the real ``torch_xla``, which would register a second ``xla`` backend in C++.

    Its spec is still found (``importlib.util.find_spec``), as diffusers and others need.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch_xla" or "torch_xla" in sys.modules:
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path)
        if found is None or found.origin is None:  # not installed, or just a folder of that name
            return None
        return importlib.machinery.ModuleSpec(name, self, origin=found.origin, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        raise ImportError(
            "xlaprof.runtime serves torch.device('xla') in this process; torch_xla cannot be imported beside it: "
            "import torch_xla in a process that does not use xlaprof.runtime"
        )
