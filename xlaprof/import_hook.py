"""``import torch_xla`` where PyTorch/XLA is not installed: served by :mod:`xlaprof.torch_xla`.

:func:`serve` puts a finder in front of ``sys.meta_path``. From then on ``torch_xla`` and its submodules are other names
of ``xlaprof.torch_xla`` and its submodules: the same module objects, imported on first use. ``importlib.metadata`` and
``importlib.util.find_spec`` answer for it without importing torch, as Hugging Face's libraries expect.

Under ``xlaprof run`` a program has it only if it asks for it: its own code imports ``torch_xla`` or names the ``xla``
device, or the environment has PJRT_DEVICE. Libraries that look whether there is one (accelerate, transformers,
Lightning) would train on it if they found it, and the program would compute elsewhere than without xlaprof.

An installed ``torch_xla`` wins: it is looked for first, each time, and ``xlaprof.torch_xla`` is another name of it.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, FrameType, ModuleType
from typing import Any

from .recording.stacks import is_library
from .version import __version__
from .when_imported import Waiting, waited_for, when_imported

NAME, HOME = "torch_xla", "xlaprof.torch_xla"

#: version of the PyTorch/XLA whose interface is served
PEER = "2.9.0"


def version() -> str:
    """What ``torch_xla.__version__`` says: ``2.9.0+xlaprof.0.1.0``."""
    return f"{PEER}+xlaprof.{__version__}"


def serve(to: CodeType | None = None) -> None:
    """Make ``import torch_xla`` work in this process and, once it was imported, in those ``multiprocessing`` spawns.

    ``to``: the code of a program that has it if it asks for it; ``None``: whoever imports it. Cheap: neither torch nor
    jax is imported before ``torch_xla`` is. The second time the finder stays, and serves everybody if ``to`` is None.
    """
    everybody = to is None or "PJRT_DEVICE" in os.environ or _names_it(to)
    finder = next((finder for finder in sys.meta_path if isinstance(finder, _Finder)), None)
    if finder is None:
        finder = _Finder()
        sys.meta_path.insert(0, finder)
    finder.everybody |= everybody
    if to is not None and "PJRT_DEVICE" in os.environ:
        when_imported("torch", _offer_accelerator)


def _offer_accelerator() -> None:
    """Load the runtime when the program first asks ``torch.accelerator`` for a device. Loaded, it answers itself."""
    if "xlaprof.runtime" in sys.modules:
        return
    accelerator: Any = sys.modules["torch.accelerator"]
    theirs = {name: getattr(accelerator, name) for name in ("current_accelerator", "device_count", "is_available")}

    def asked(name: str, *args: Any, **kwargs: Any) -> Any:
        ready = "xlaprof.runtime" in sys.modules or importlib.util.find_spec("jax") is None
        if not ready and not is_pytorch(sys._getframe(1)):
            importlib.import_module(NAME)
        now = getattr(accelerator, name)
        return getattr(now, "theirs", now)(*args, **kwargs)

    for name, original in theirs.items():
        setattr(accelerator, name, functools.partial(asked, name))
        getattr(accelerator, name).theirs = original


def is_pytorch(frame: FrameType) -> bool:
    """Is ``frame`` PyTorch's own code? What Dynamo calls while it traces, it calls for the program."""
    module: str = frame.f_globals.get("__name__", "")
    return module.startswith("torch.") and module not in ("torch._dynamo.variables.torch", "torch._dynamo.guards")


def _names_it(code: CodeType) -> bool:
    """Whether a program's own text imports ``torch_xla`` or names an ``xla`` device."""
    texts = [*code.co_names, *(constant for constant in code.co_consts if isinstance(constant, str))]
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return any(text.split(".")[0] == NAME or text.split(":")[0] == "xla" for text in texts) or any(
        map(_names_it, inner)
    )


def _asked_by_program() -> bool:
    """Whether code of the program, and no library, imports or looks for it now."""
    here = os.path.dirname(__file__)
    frame: FrameType | None = sys._getframe()
    while frame is not None and (
        "importlib" in frame.f_code.co_filename or os.path.dirname(frame.f_code.co_filename) == here
    ):
        frame = frame.f_back
    return frame is not None and not is_library(frame.f_code.co_filename, None)


def served() -> bool:
    """Is ``torch_xla``, in this process, ours?"""
    return NAME in sys.modules and sys.modules[NAME] is sys.modules.get(HOME) and not _theirs()


def _theirs() -> bool:
    """Is ``xlaprof.torch_xla`` another name of one that is installed?"""
    module = sys.modules.get(HOME)
    return module is not None and module is sys.modules.get(NAME) and module.__name__ == NAME


def installed() -> ModuleSpec | None:
    """The spec of a ``torch_xla`` that is not ours, if there is one that could be imported."""
    for finder in sys.meta_path:
        if isinstance(finder, _Finder | Waiting):
            continue
        spec = finder.find_spec(NAME, None)
        if spec is not None and spec.loader is not None and spec.origin is not None and not _unbuilt(spec):
            return spec
    return None


def _unbuilt(spec: ModuleSpec) -> bool:
    """Is this the package's folder in a checkout of PyTorch/XLA (its tests are run there), without its C++ part?"""
    folder = os.path.dirname(spec.origin or "")
    return os.path.isdir(os.path.join(folder, "csrc")) and importlib.util.find_spec("_XLAC") is None


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds ``torch_xla`` and what is below it in ``xlaprof.torch_xla``, under whose name it is imported."""

    def __init__(self) -> None:
        self.everybody = False  # else only who asks for it, and whoever comes later

    def _serves(self) -> bool:
        self.everybody = self.everybody or HOME in sys.modules or _asked_by_program()
        return self.everybody

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == NAME and (real := installed()) is not None:
            return waited_for(real)
        if name == NAME:
            if not self._serves():
                return None
            other = HOME
        elif name.startswith(f"{NAME}.") and served():
            other = HOME + name.removeprefix(NAME)
        elif name.startswith(f"{HOME}.") and _theirs():
            other = NAME + name.removeprefix(HOME)
        else:
            return None
        home = importlib.util.find_spec(other)
        if home is None:
            return None
        spec = ModuleSpec(name, self, origin=home.origin, is_package=home.submodule_search_locations is not None)
        spec.submodule_search_locations = home.submodule_search_locations
        spec.loader_state = other
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(spec.loader_state)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to run: the module gets its own spec back, by which its relative imports go."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state

    def find_distributions(self, context: Any = None) -> Iterator[Any]:
        """The distribution ``torch_xla``, for ``importlib.metadata``."""
        wanted = getattr(context, "name", None)
        named = wanted is None or wanted.replace("-", "_").lower() == NAME
        if named and installed() is None and self._serves():
            yield _distribution()


def _distribution() -> Any:
    from importlib.metadata import Distribution  # slow to import

    class Served(Distribution):
        def read_text(self, filename: str) -> str | None:
            return {
                "METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version()}\n",
                "top_level.txt": f"{NAME}\n",
            }.get(filename)

        def locate_file(self, path: Any) -> Any:
            return os.path.join(os.path.dirname(__file__), path)

    return Served()


class _Serve:
    """Calls :func:`serve` where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return serve, ()


def serve_children() -> None:
    """Have processes that ``multiprocessing`` spawns serve ``torch_xla`` too, before they import the main module.

    They are sent a pickled dictionary first; of its keys they read those they know.
    """
    from multiprocessing import spawn

    original = spawn.get_preparation_data
    if getattr(original, "serves_torch_xla", False):
        return

    def get_preparation_data(name: str) -> dict[str, Any]:
        return {NAME: _Serve(), **original(name)}

    get_preparation_data.serves_torch_xla = True  # type: ignore[attr-defined]
    spawn.get_preparation_data = get_preparation_data
