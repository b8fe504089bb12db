"""What of CUDA and of PyTorch's private parts is needed, in one place (PyTorch 2.11 to 2.13, CUDA 12 and 13).

CUDA is asked by its own runtime library, the one that PyTorch has loaded, which is never loaded or initialised here.
Where a PyTorch has it otherwise (ROCm, a runtime that is linked in), :class:`~.poller.Unwatched` says why.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import sys
from collections.abc import Callable
from typing import Any

from .poller import Poller, Unwatched, loaded

_LIBRARY = re.compile(r"/\S*/libcudart\S*\.so\S*")
_RELAXED = 2
#: the stream of programs that have no streams of their own, and the one that is never captured
_LEGACY = 1


def when_initialised(then: Callable[[], None]) -> Callable[[], None]:
    """Call ``then`` while PyTorch initialises CUDA: at once, if it has. The function returned cancels that.

    ``then`` must not raise: PyTorch would hand that to the program.
    """
    cuda: Any = sys.modules["torch.cuda"]
    initialised, waiting = getattr(cuda, "is_initialized", None), getattr(cuda, "_queued_calls", None)
    if initialised is None or not isinstance(waiting, list):
        raise Unwatched("this PyTorch does not say when CUDA is initialised")
    if initialised():
        then()
        return lambda: None
    entry: tuple[Callable[[], None], list[str]] = (then, [])  # and the stack that PyTorch shows where it raises
    waiting.append(entry)

    def cancel() -> None:
        with contextlib.suppress(ValueError):  # somebody has emptied the list
            waiting.remove(entry)

    return cancel


class Driver:
    """CUDA's runtime."""

    def __init__(self) -> None:
        torch: Any = sys.modules["torch"]
        if not getattr(torch.version, "cuda", None):
            raise Unwatched("this PyTorch is not built for CUDA")
        if not hasattr(torch._C, "_cuda_hasPrimaryContext"):
            raise Unwatched("this PyTorch does not say which devices are in use")
        self._runtime = ctypes.PyDLL(_loaded())
        self._library = loaded()

    def devices(self) -> list[int]:
        """The devices that the program uses: no other is given a context by being asked."""
        torch: Any = sys.modules["torch"]
        if not torch.cuda.is_initialized():
            return []
        return [number for number in range(torch.cuda.device_count()) if torch._C._cuda_hasPrimaryContext(number)]

    def describe(self, device: int) -> tuple[str, int]:
        """What a device that is in use is called, and how many there are."""
        torch: Any = sys.modules["torch"]
        return str(torch.cuda.get_device_name(device)), int(torch.cuda.device_count())

    def poller(self) -> Poller:
        try:
            functions = self._runtime.cudaStreamQuery, self._runtime.cudaStreamIsCapturing
        except AttributeError as error:
            raise Unwatched(f"CUDA's runtime lacks a function: {error}") from None
        query, capturing = (ctypes.cast(one, ctypes.c_void_p).value or 0 for one in functions)
        return Poller(self._library, query, capturing, _LEGACY)

    def enter(self, device: int) -> None:
        """Have what the calling thread asks be asked of ``device``, and never end a capture of another thread.

        While a CUDA graph is captured, a question of any thread in another mode than "relaxed" ends that.
        """
        for asked in (_RELAXED, _RELAXED):
            mode = ctypes.c_int(asked)
            self._check(self._runtime.cudaThreadExchangeStreamCaptureMode(ctypes.byref(mode)))
        if mode.value != _RELAXED:  # what the second exchange gave back
            raise Unwatched("CUDA does not keep a thread's mode of capture")
        self._check(self._runtime.cudaSetDevice(device))

    def error(self, code: int) -> str:
        self._runtime.cudaGetErrorName.restype = ctypes.c_char_p
        return (self._runtime.cudaGetErrorName(code) or b"an unknown error").decode("ascii", "replace")

    def _check(self, code: int) -> None:
        if code:
            raise Unwatched(self.error(code))


def _loaded() -> str:
    """The file of the runtime library that PyTorch has loaded."""
    try:
        with open("/proc/self/maps") as maps:
            found: list[str] = sorted(set(_LIBRARY.findall(maps.read())))
    except OSError as error:
        raise Unwatched(f"the libraries of this process are not known: {error.strerror}") from None
    if not found:
        raise Unwatched("this PyTorch has CUDA's runtime linked in")
    torch: Any = sys.modules["torch"]
    version = f".so.{torch.version.cuda.partition('.')[0]}"  # another package may have brought another one
    return next((one for one in found if version in one), found[0])
