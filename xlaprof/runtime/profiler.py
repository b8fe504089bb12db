"""Scopes, steps and device profiles, under the names and signatures of ``torch_xla.debug.profiler``.

::

    import xlaprof.runtime.profiler as xp

    server = xp.start_server(9012)
    for i, (x, y) in enumerate(loader):
        with xp.StepTrace("train", step_num=i):   # a barrier at its end
            with xp.Trace("forward"):
                loss = loss_fn(model(x), y)
            ...

A scope appears in xlaprof's recordings and on the host's timeline of jax's profiles, and the operations recorded inside
it carry its name to the device's timeline (``forward/Linear/train.py:31``).
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

import jax

from xlaprof.errors import warn
from xlaprof.recording import trace as scopes

from .execution import barrier
from .modes import closures
from .modes.barriers import get_tracer_marked_step as get_tracer_marked_step  # of this module, to PyTorch/XLA
from .modes.barriers import set_tracer_marked_step
from .tape import tapes
from .trace import source

_EVERYWHERE = ("", "0.0.0.0", "::")

F = TypeVar("F", bound=Callable[..., Any])


class Trace(scopes.Trace):
    """A named scope: ``with Trace("forward", layer=3):`` or ``@Trace("forward")``.

    ``kwargs`` are shown with it. In a profile of the device, operations recorded in the scope carry its name.
    """

    __slots__ = ("_annotations",)

    def __init__(self, name: str, /, **kwargs: object) -> None:
        super().__init__(name, **kwargs)
        self._annotations: list[Any] = []  # of the open ones: a scope may be entered inside itself

    def __enter__(self) -> Self:
        self._open()
        super().__enter__()
        return self

    def _open(self) -> None:
        annotation = self._annotate()
        self._annotations.append(annotation)
        annotation.__enter__()
        source.scopes().append(self._name)

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        super().__exit__(kind, value, tb)
        self._leave()
        self._annotations.pop().__exit__(kind, value, tb)

    def _annotate(self) -> Any:
        return jax.profiler.TraceAnnotation(self._name, **self._metadata)

    def _leave(self) -> None:
        open_scopes = source.scopes()
        if self._name in open_scopes:  # scopes may be closed in another order than they were opened
            del open_scopes[len(open_scopes) - 1 - open_scopes[::-1].index(self._name)]


class StepTrace(Trace):
    """One step, with a barrier at its end: ``with StepTrace("train", step_num=i):``.

    The device loader makes no barrier of its own for it.
    """

    __slots__ = ("_step",)

    def __init__(self, name: str, /, **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        num = kwargs.get("step_num")
        self._step = scopes.StepTrace(name, **{**kwargs, "step_num": num if isinstance(num, int) else None})

    def __enter__(self) -> Self:
        set_tracer_marked_step(True)
        self._step.__enter__()
        self._open()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._leave()
        try:
            barrier.barriers(tapes.existing() or [tapes.tape()], "step_trace")
            closures.run()
        finally:
            self._annotations.pop().__exit__(kind, value, tb)
            self._step.__exit__(kind, value, tb)

    def _annotate(self) -> Any:
        return jax.profiler.TraceAnnotation(self._name, _r=1, **self._metadata)


def trace_me(scope: str) -> Callable[[F], F]:
    """Decorator: each call of the function is a :class:`Trace` named ``scope``."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def traced(*args: Any, **kwargs: Any) -> Any:
            with Trace(scope):
                return function(*args, **kwargs)

        return traced  # type: ignore[return-value]

    return decorate


class ProfilerServer:
    """A running profiler server, of :func:`start_server`. It ends when this object is deleted."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._server: Any = jax.profiler.start_server(port)

    def __del__(self) -> None:
        if getattr(self, "_server", None) is not None and sys is not None and not sys.is_finalizing():
            jax.profiler.stop_server()


def start_server(port: int, only_on_master: bool = True, *, host: str = "localhost") -> ProfilerServer | None:
    """Let clients profile this process on ``port``: :func:`trace`, TensorBoard's "capture profile", XProf.

    Clients of this host alone, unless ``host`` is "0.0.0.0": the server has no password. A warning says where it
    listens on all interfaces. With ``only_on_master`` only the first process of a host starts one, the others return
    ``None``. Raises ``RuntimeError`` where the port is no port, or busy, or this process has a server already.
    """
    if only_on_master and int(os.environ.get("LOCAL_RANK", os.environ.get("PJRT_LOCAL_PROCESS_RANK", "0"))):
        return None
    if host not in ("localhost", "127.0.0.1", "::1", *_EVERYWHERE):
        raise ValueError(f"host={host!r}: a profiler server serves 'localhost', or '0.0.0.0', all interfaces")
    try:
        with socket.socket() as probe:
            probe.bind(("", port))
    except (OSError, OverflowError) as error:
        raise RuntimeError(f"no profiler server on port {port}: {error}: choose another port") from None
    try:
        server = ProfilerServer(port)
    except ValueError as error:  # jax allows one
        raise RuntimeError(f"no second profiler server: {error}") from None
    if host in _EVERYWHERE or not _keep_local(port):
        why = "" if host in _EVERYWHERE else ", which this system cannot prevent"
        warn(
            f"the profiler server listens on all interfaces{why}: whoever reaches port {port} may profile this program"
        )
    return server


def _keep_local(port: int) -> bool:
    """Have what listens on ``port`` here accept connections of this host alone. False where the system cannot.

    jaxlib's server listens at ``[::]`` and has no option for another address, so its sockets are tied to the loopback
    interface when they are there (Linux; before 5.7 for root only).
    """
    tied = False
    try:
        for fd in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(FileNotFoundError):  # closed by now, as that of the listing is
                if not stat.S_ISSOCK(os.stat(f"/proc/self/fd/{fd}").st_mode):
                    continue
                with socket.socket(fileno=os.dup(fd)) as one:
                    if one.family not in (socket.AF_INET, socket.AF_INET6) or one.getsockname()[1] != port:
                        continue
                    if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
                        tied = True
    except (OSError, AttributeError):  # no /proc, no such option, or not allowed
        return False
    return tied


def trace(
    service_addr: str,
    logdir: str,
    duration_ms: int = 1000,
    num_tracing_attempts: int = 3,
    host_tracer_level: int = 2,
    device_tracer_level: int = 1,
    delay_ms: int = 0,
    timeout_s: int = 120,
    interval_s: int = 5,
) -> None:
    """Profile the processes that listen at ``service_addr`` (``"host:port"``, several with commas) for ``duration_ms``.

    Blocks until the profile is in ``logdir/plugins/profile/``, where TensorBoard finds it. A request that fails is
    repeated every ``interval_s`` until ``timeout_s`` have passed; then it raises ``RuntimeError``. Levels of the host:
    1 critical events only, 2 more, 3 all; of the device: 0 off, 1 on. Needs ``xprof``, whose client this is.
    """
    try:
        from xprof.convert import _pywrap_profiler_plugin as client
    except ImportError as error:
        raise RuntimeError("profiler.trace is XProf's client: pip install xprof, or use start_trace here") from error
    options = {
        "host_tracer_level": host_tracer_level,
        "device_tracer_level": device_tracer_level,
        "delay_ms": delay_ms,
    }
    service_addr = service_addr.removeprefix("grpc://")
    end = time.monotonic() + timeout_s
    while True:
        try:
            client.trace(service_addr, str(logdir), "", True, duration_ms, num_tracing_attempts, options)
            return
        except Exception as error:
            if time.monotonic() + interval_s > end:
                raise RuntimeError(f"no profile from {service_addr} in {timeout_s} s: {error}") from error
        time.sleep(interval_s)


def trace_detached(*args: Any, **kwargs: Any) -> None:
    """:func:`trace` in a thread of its own."""
    threading.Thread(target=trace, args=args, kwargs=kwargs, name="xlaprof-profile").start()


def start_trace(log_dir: os.PathLike[str] | str, *args: Any, **kwargs: Any) -> None:
    """Begin to profile this process; :func:`stop_trace` writes the profile to ``log_dir/plugins/profile/``.

    Further arguments are ``jax.profiler.start_trace``'s; Python's own calls are left out, as PyTorch/XLA does, unless
    its ``profiler_options`` ask for them. Raises ``RuntimeError`` if a profile has been started already.
    """
    tapes.tape()  # the profiler asks the backend
    if kwargs.get("profiler_options") is None:
        kwargs["profiler_options"] = options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
    jax.profiler.start_trace(log_dir, *args, **kwargs)


def stop_trace() -> None:
    """End the profile that :func:`start_trace` began, and write it. Raises ``RuntimeError`` if none was started."""
    jax.profiler.stop_trace()
