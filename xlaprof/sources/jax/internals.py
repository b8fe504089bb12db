"""What of JAX, and of Equinox, is private, in one place. Where another version has it otherwise, less is known, and
nothing fails.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any, NamedTuple

from xlaprof.recording.stacks import RawFrame

#: the function of JAX's in which a call that no compiled program fits is handled, and what it calls the parts of it
_MISS, _FILE = "cache_miss", "pjit.py"
_PARTS = ("fun", "args", "kwargs", "jit_info")
_RUNTIME = (f"runtime{os.sep}", f"torch_xla{os.sep}")
_DEEPEST = 2_000
_EQUINOX = os.path.join("equinox", "_jit.py")
_NEAR = 12  # frames between the begin of a phase and what begins it


class Miss(NamedTuple):
    """A call that no compiled program fits, while JAX handles it."""

    frame: int  # identifies it as long as it lasts
    fun: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: Any  # PjitInfo: static_argnums, static_argnames, donate_argnums, fun_signature...


class Here(NamedTuple):
    """Where JAX compiles now."""

    miss: Miss | None  # None: no call of a jitted function needs it
    frames: frozenset[int]  # of all that are on the stack
    ours: bool  # the embedded runtime compiles, for a graph of its own


def here(own: str, package: str) -> Here:
    """``own``: the folder of xlaprof; ``package``: that of jax."""
    frame: FrameType | None = sys._getframe(1)
    frames, miss, ours = set[int](), None, None
    for _ in range(_DEEPEST):
        if frame is None:
            break
        frames.add(id(frame))
        file = frame.f_code.co_filename
        if miss is None and frame.f_code.co_name == _MISS and file.endswith(_FILE):
            miss = _miss(frame)
        if ours is None:
            ours = _called_by(file, own, package)
        frame = frame.f_back
    return Here(miss, frozenset(frames), bool(ours))


def _called_by(file: str, own: str, package: str) -> bool | None:
    """Whether who called JAX is the runtime; None where the frame is JAX's, or of the rest of xlaprof."""
    if file.startswith(package):
        return None
    if not file.startswith(own):
        return False
    return True if file.startswith(_RUNTIME, len(own)) else None


def _miss(frame: FrameType) -> Miss | None:
    held = frame.f_locals
    if any(name not in held for name in _PARTS):
        return None
    return Miss(id(frame), *(held[name] for name in _PARTS))


def missed() -> Miss | None:
    """The call that no compiled program fits, or that C++ cannot take the short way with, while it is executed."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_NEAR * 2):
        if frame is None:
            break
        if frame.f_code.co_name == _MISS and frame.f_code.co_filename.endswith(_FILE):
            return _miss(frame)
        frame = frame.f_back
    return None


def executions() -> Any:
    """The class whose objects run a program from Python; None where this JAX has it otherwise."""
    return getattr(sys.modules.get("jax._src.interpreters.pxla"), "ExecuteReplicated", None)


def uploading() -> Any:
    """The module whose ``batched_device_put`` brings to the device what C++ does not; None where it has none."""
    module = sys.modules.get("jax._src.interpreters.pxla")
    return module if callable(getattr(module, "batched_device_put", None)) else None


def calling_back() -> Any:
    """The module whose ``emit_python_callback`` puts a call of Python into a program; None where it has none."""
    module = sys.modules.get("jax._src.callback")
    return module if callable(getattr(module, "emit_python_callback", None)) else None


def lowered() -> Any:
    """The jaxpr that JAX lowers now; None where this JAX has it otherwise."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_NEAR):
        if frame is None:
            break
        if frame.f_code.co_filename.endswith("pxla.py") and "closed_jaxpr" in frame.f_code.co_varnames:
            return frame.f_locals.get("closed_jaxpr")
        frame = frame.f_back
    return None


def one_level(value: Any) -> tuple[list[tuple[Any, Any]], Any] | None:
    """Of a node of a pytree: its children with their keys, and what it has besides. None: it is a leaf."""
    tree: Any = sys.modules["jax.tree_util"]
    found = tree.default_registry.flatten_one_level_with_keys(value)
    if found is None:
        return None
    children = list(found[0])
    fields = getattr(value, "_fields", ())
    if isinstance(value, tuple) and len(fields) == len(children):  # jaxlib 0.10 gives each the first field's name
        children = [(tree.GetAttrKey(field), child) for field, (_, child) in zip(fields, children, strict=True)]
    return children, found[1]


def keys(path: Any) -> str:
    """A path within a pytree as Python writes it."""
    return str(sys.modules["jax.tree_util"].keystr(tuple(path)))


class Clears:
    """How often all of JAX's caches were cleared (``jax.clear_caches()``): it is registered as one of them."""

    def __init__(self, line: Callable[[], tuple[RawFrame, ...]]) -> None:
        """``line``: the line of the program that runs, and what called it."""
        self.times, self.frames = 0, tuple[RawFrame, ...]()
        self._line = line
        register = getattr(sys.modules.get("jax._src.util"), "register_cache", None)
        if callable(register):
            register(self, "xlaprof")

    def cache_clear(self) -> None:
        self.times, self.frames = self.times + 1, self._line()

    def cache_info(self) -> tuple[int, int, int, int]:
        return 0, 0, 0, 0

    def cache_keys(self) -> list[Any]:
        return []


def is_traced(value: Any) -> bool:
    """Whether this is a tracer: it has a shape, and no place on a device."""
    core: Any = sys.modules.get("jax.core")
    return core is not None and isinstance(value, core.Tracer)


def context() -> Any:
    """What of JAX's configuration is part of a program's key: equal, or not. ``None`` where it cannot be asked."""
    config: Any = sys.modules.get("jax._src.config")
    ask = getattr(config, "trace_context", None)
    return ask() if callable(ask) else None


def context_names() -> tuple[str, ...]:
    """The names of what :func:`context` returns, in its order; empty where JAX does not tell them."""
    config: Any = sys.modules.get("jax._src.config")
    try:
        return tuple(config.trace_context_names())
    except (AttributeError, NotImplementedError):
        return ()


def is_ours(own: str, package: str) -> bool:
    """Whether the embedded runtime called JAX here."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_DEEPEST):
        if frame is None:
            return False
        ours = _called_by(frame.f_code.co_filename, own, package)
        if ours is not None:
            return ours
        frame = frame.f_back
    return False


def array_class() -> Any:
    """The class of arrays on a device."""
    return sys.modules["jax._src.array"].ArrayImpl


def post_hook() -> Any:
    """The slot of what JAX calls after each call that found its program: ``get_global``, ``set_global``."""
    slot: Any = getattr(sys.modules.get("jax._src.api"), "_post_hook_state", None)
    names = ("get_global", "set_global", "get_local", "set_local")
    return slot if all(hasattr(slot, name) for name in names) else None


def loaded(executable: Any) -> Any:
    """XLA's program of what :func:`executions` returns; None where this JAX has it otherwise."""
    found = getattr(executable, "xla_executable", None)
    names = ("get_compiled_memory_stats", "cost_analysis", "hlo_modules", "local_devices")
    return found if all(hasattr(found, name) for name in names) else None


def cache_state(backend_s: float) -> str:
    """Why JAX's persistent cache does not take a program: it is "off", or the program compiled "fast"; else "other"."""
    config: Any = sys.modules["jax"].config
    if not getattr(config, "jax_compilation_cache_dir", None) or not getattr(
        config, "jax_enable_compilation_cache", True
    ):
        return "off"
    least = getattr(config, "jax_persistent_cache_min_compile_time_secs", 1.0)
    return "fast" if backend_s < least else "other"


# -- calls that a library passes on to ``jax.jit`` in another form: as the program wrote them


def opened(miss: Miss) -> Miss:
    """The call of the program's own function. Where a library has it otherwise, the call that JAX was given."""
    code = getattr(miss.fun, "__code__", None)
    if code is not None and code.co_filename.endswith(_EQUINOX) and len(miss.args) == 3:
        try:
            return _filter_jit(miss)
        except (TypeError, ValueError, KeyError, AttributeError):
            return miss
    return miss


def _filter_jit(miss: Miss) -> Miss:
    """``equinox.filter_jit`` divides function and arguments into arrays and what is static, which is all else."""
    donated, kept, static = miss.args
    dynamic = {**donated, **kept}
    fun, first, (rest, kwargs) = (
        treedef.unflatten([theirs if fixed is None else fixed for theirs, fixed in zip(arrays, leaves, strict=True)])
        for arrays, (leaves, treedef) in zip((dynamic["fun"], dynamic["first"], dynamic["rest"]), static, strict=True)
    )
    args: tuple[Any, ...] = (first, *rest)[:-1]  # the last stands for no argument
    options = SimpleNamespace(
        fun_signature=inspect.signature(fun),
        donate_argnums=tuple(sorted(donated)),
        static_leaves=True,
    )
    return miss._replace(fun=fun, args=args, kwargs=kwargs, options=options)
