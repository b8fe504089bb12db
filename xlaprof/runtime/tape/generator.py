"""``torch.Generator(device="xla")``.

PyTorch makes generators in C++ for the devices it was built with, and asks ``torch_xla`` for those of ``xla``. A
generator is a state machine and a device. Any state machine will do, as a random operation only takes its key from it.
So ours is a host generator whose device is set to ``xla``, and PyTorch itself refuses it on the host ("Expected a 'cpu'
device type for generator but found 'xla'").
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

#: c10::DeviceType::XLA
_XLA = 9
#: bytes of the c10::Device "cpu", and the offsets in a GeneratorImpl at which to look for them
_HOST, _WHERE = (0, 0xFF), range(16, 128, 8)


class Generator(torch.Generator):
    """A stream of random numbers for ``xla`` tensors: ``manual_seed``, ``get_state``... are a host generator's.

    ``torch.Generator(device="xla")`` makes one too. Equal seeds give equal numbers, on any ``xla`` device. Raises
    ``RuntimeError`` on a torch whose generators cannot be made for ``xla``.
    """

    def __new__(cls, device: Any = "xla") -> Generator:
        place = torch.device(device)
        if place.type != "xla":
            raise RuntimeError(f"xlaprof.runtime.Generator is for xla, not for {place}: torch.Generator({device!r})")
        if _offset is None:
            raise RuntimeError(
                f"generators of torch {torch.__version__} cannot be made for xla: pass torch.Generator() instead"
            )
        made = super().__new__(cls)
        _put(made, _offset, (_XLA, place.index or 0))
        return made

    def clone_state(self) -> Generator:
        """A new generator in the same state."""
        return _restored(str(self.device), self.get_state())

    def __reduce__(self) -> Any:
        return _restored, (str(self.device), self.get_state())


def _restored(device: str, state: torch.Tensor) -> Generator:
    made = Generator(device)
    made.set_state(state)
    return made


def on_host(generator: torch.Generator) -> torch.Generator:
    """A host generator in the state of ``generator``."""
    twin = torch.Generator()
    twin.set_state(generator.get_state())
    return twin


def _put(generator: torch.Generator, offset: int, device: tuple[int, int]) -> None:
    place = (ctypes.c_uint8 * 2).from_address(generator._cdata + offset)  # type: ignore[attr-defined]
    place[0], place[1] = device


def _find() -> int | None:
    """Offset of the device in a generator: a write there changes ``generator.device``."""
    generator = torch.Generator()
    for offset in _WHERE:
        if tuple((ctypes.c_uint8 * 2).from_address(generator._cdata + offset)) != _HOST:  # type: ignore[attr-defined]
            continue
        _put(generator, offset, (_XLA, 0))
        if generator.device == torch.device("xla", 0):
            return offset
        _put(generator, offset, _HOST)
    return None


_offset = _find()


def install() -> None:
    """Let ``torch.Generator(device="xla")`` make ours.

    ``torch.Generator`` is a type in C whose own type is a class in Python since torch 2.11: the call passes there.
    """
    kind = type(torch.Generator)
    if _offset is None or kind is type:
        return
    make = kind.__call__

    def call(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls is torch.Generator and (args or kwargs):
            device = args[0] if args else kwargs.get("device")
            if isinstance(device, (str, torch.device)) and torch.device(device).type == "xla":
                return Generator(device)
        return make(cls, *args, **kwargs)

    kind.__call__ = call  # type: ignore[method-assign, assignment]
