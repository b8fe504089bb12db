"""Starting the ranks: one process for each device, here or, where torchrun has started them, in place."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import pickle
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch.multiprocessing as torch_mp
from jax._src import xla_bridge
from torch.distributed import is_torchelastic_launched
from torch.multiprocessing.spawn import ProcessContext, ProcessExitedException, ProcessRaisedException, _wrap

from xlaprof.errors import warn
from xlaprof.recording import recorder
from xlaprof.recording.logfile import rank_path
from xlaprof.runtime.execution import barrier
from xlaprof.runtime.tape import tapes

from . import faults, world
from .world import World

#: s that ranks have to end by themselves once one has failed, and again after SIGTERM
GRACE_S = 2.0
_LAUNCHED = "XLAPROF_LAUNCHED"
_FAILURE = f"{faults.RankFailure.__name__}: "


def launch(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int | None = None,
    debug_single_process: bool = False,
    start_method: str = "spawn",
) -> Any:
    """Run ``fn(index, *args)`` in one process per device, and return when all have ended.

    On the CPU ``nprocs`` processes are started, by default CPU_NUM_DEVICES; with NNODES and NODE_RANK set, that many on
    each host. With one, or ``debug_single_process``, ``fn`` runs in this process. Where this process is a rank already
    (torchrun started it, or RANK and WORLD_SIZE are set) it joins the others and runs ``fn`` in place.

    Raises ``torch.multiprocessing.ProcessRaisedException`` with the traceback of the rank that failed first,
    ``ProcessExitedException`` where one was killed, ``ValueError`` where ``fn`` cannot be sent to other processes.
    """
    if debug_single_process:
        return fn(world.global_ordinal(), *args)
    if is_torchelastic_launched():
        return _in_place(fn, int(os.environ.get("LOCAL_RANK", "0")), args)
    return spawn(fn, args, nprocs, start_method=start_method)


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int | None = None,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> Any:
    """``xmp.spawn``: :func:`launch`, where ``index`` is the global ordinal.

    With ``join=False`` it returns the ``torch.multiprocessing.ProcessContext`` of the processes instead of waiting.
    """
    if nprocs == 1 and (_LAUNCHED in os.environ or "RANK" not in os.environ):
        return fn(world.global_ordinal(), *args)
    _require_no_rank()
    here = world.from_environment()
    if here is not None:
        return _in_place(fn, here.rank, args)
    count = processes_here(nprocs)
    nodes, node = _nodes()
    if count == 1 and nodes == 1:
        return fn(0, *args)
    _check_sendable(fn, start_method)
    context = _start(fn, args, _worlds(count, nodes, node), daemon, start_method)
    if not join:
        return context
    _wait(context)
    return None


def run_multiprocess(
    fn: Callable[..., Any], *args: Any, start_method: str = "spawn", nprocs: int | None = None, **kwargs: Any
) -> dict[int, Any]:
    """Run ``fn(*args, **kwargs)`` in one process per device; return the results of this host's ranks by global ordinal.

    A single device gets a process of its own too. Raises as :func:`launch` does; ``__cause__`` is ``fn``'s error.
    """
    _require_no_rank()
    here = world.from_environment()
    if here is not None:
        return {here.rank: _in_place(lambda _: fn(*args, **kwargs), here.rank, ())}
    count = processes_here(nprocs)
    _check_sendable(fn, start_method)
    with tempfile.TemporaryDirectory(prefix="xlaprof-results-") as folder:
        given = (fn, args, kwargs, folder)
        try:
            _wait(_start(_returning, given, _worlds(count, *_nodes()), daemon=False, start_method=start_method))
        except ProcessRaisedException as error:
            raised = os.path.join(folder, f"{error.error_index}.raised")
            if not os.path.exists(raised):
                raise
            with open(raised, "rb") as file:
                cause = pickle.load(file)
            raise error from cause
        results: dict[int, Any] = {}
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), "rb") as file:
                results[int(name)] = pickle.load(file)
    return dict(sorted(results.items()))


def _returning(index: int, fn: Callable[..., Any], args: Any, kwargs: Any, folder: str) -> None:
    try:
        result = fn(*args, **kwargs)
    except Exception as error:
        with contextlib.suppress(Exception):  # without pickle, the traceback is still reported
            sent = pickle.dumps(error)
            pickle.loads(sent)
            with open(os.path.join(folder, f"{os.environ['LOCAL_RANK']}.raised"), "wb") as file:
                file.write(sent)
        raise
    with open(os.path.join(folder, str(index)), "wb") as file:
        pickle.dump(result, file)


def _require_no_rank() -> None:
    if _LAUNCHED in os.environ:
        raise RuntimeError(
            f"this process is rank {os.environ.get('RANK')} of {os.environ.get('WORLD_SIZE')} already and cannot start "
            "ranks: put the call of launch under if __name__ == '__main__':, and call it once"
        )


def _in_place(fn: Callable[..., Any], index: int, args: tuple[Any, ...]) -> Any:
    world.join()
    try:
        return fn(index, *args)
    except BaseException as error:
        world.failed(error)
        raise


# -- which ranks are started --------------------------------------------------------------------------


def processes_here(nprocs: int | None = None) -> int:
    """Number of processes on this host: ``nprocs`` on the CPU, one per device elsewhere."""
    kind = world.device_kind()
    if kind == "CPU":
        count = int(os.environ.get("CPU_NUM_DEVICES") or "1") if nprocs is None else nprocs
        if count < 1:
            raise ValueError(f"nprocs={count}: at least one process is needed")
        return count
    there = int(os.environ.get(f"{'GPU' if kind == 'CUDA' else kind}_NUM_DEVICES") or "0") or tapes.count()
    if nprocs not in (None, there):
        raise ValueError(
            f"Unsupported nprocs ({nprocs}). Please use nprocs=1 or None (default). If None, spawn will use all "
            "available devices. Use the environment variable X_NUM_DEVICES (where X is CPU, GPU, TPU, NEURONCORE, etc) "
            "to limit the number of devices used."
        )
    return there


def _nodes() -> tuple[int, int]:
    """Number of hosts, and this one's."""
    nodes, node = int(os.environ.get("NNODES") or "1"), int(os.environ.get("NODE_RANK") or "0")
    if not 0 <= node < nodes:
        raise ValueError(f"NODE_RANK={node} is none of NNODES={nodes}: hosts are 0 to {nodes - 1}")
    if nodes > 1 and not ("MASTER_ADDR" in os.environ and "MASTER_PORT" in os.environ):
        raise ValueError(f"NNODES={nodes} but MASTER_ADDR or MASTER_PORT is not set: say where host 0 is")
    return nodes, node


def _worlds(count: int, nodes: int, node: int) -> list[World]:
    address = os.environ.get("MASTER_ADDR", "127.0.0.1")
    port = int(os.environ.get("MASTER_PORT") or "0") or _free_port()
    return [World(node * count + i, nodes * count, i, count, address, port) for i in range(count)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _check_sendable(fn: Callable[..., Any], start_method: str) -> None:
    """Raise where other processes cannot get ``fn``: a spawned one imports it, a forked one has no device."""
    if start_method == "fork":
        if xla_bridge.backends_are_initialized():
            raise RuntimeError(
                "start_method='fork' needs a process that has not used its device, whose threads a fork leaves behind: "
                "use start_method='spawn', or launch first"
            )
        return
    name = getattr(fn, "__qualname__", repr(fn))
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    no_file = file is None and getattr(fn, "__module__", "") == "__main__"
    if getattr(main, "__spec__", None) is None and (no_file or (file is not None and not os.path.isfile(file))):
        raise ValueError(
            f"launch cannot send {name} to other processes: it was defined in an interactive session, which they "
            "cannot import. Put it into a module, run one process (nprocs=1), or use start_method='fork' before the "
            "first use of the device"
        )
    try:
        pickle.dumps(fn)
    except Exception as error:
        raise ValueError(
            f"launch cannot send {name} to other processes ({error}): define it at the top level of a module"
        ) from None


# -- starting and waiting -----------------------------------------------------------------------------


class _Recording(NamedTuple):
    """The recording of this process, which each rank repeats: a log of its own beside this one's."""

    path: str
    detail: recorder.Detail
    mode: int


def _start(
    fn: Callable[..., Any], args: tuple[Any, ...], worlds: list[World], daemon: bool, start_method: str
) -> ProcessContext:
    mp: Any = multiprocessing.get_context(start_method)
    active = recorder.active
    recording = None
    if active is not None:
        # the one process of a job that it starts records beside it, too
        path = rank_path(active.path, 0, 2) if worlds[0].size == 1 else active.path
        recording = _Recording(path, active.detail, active.mode)
    processes: list[Any] = []
    # Ranks that fail leave their error there, pickled: the folder is this user's alone, and of this launch alone.
    folder = tempfile.mkdtemp(prefix="xlaprof-ranks-")
    files = [os.path.join(folder, f"{place.rank}.pickle") for place in worlds]
    # Ranks of other hosts, which another launch starts, would not have it.
    secret = {world.TOKEN: secrets.token_hex(16)} if len(worlds) == worlds[0].size else {}
    try:
        for place, file in zip(worlds, files, strict=True):
            environment = _environment(place) | secret
            process = mp.Process(target=_rank, args=(fn, place.rank, args, file, environment, recording), daemon=daemon)
            with _environ(environment):  # a spawned process imports the script before anything of ours runs there
                process.start()
            processes.append(process)
    except BaseException:
        for process in processes:
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    context = ProcessContext(processes, files)
    weakref.finalize(context, shutil.rmtree, folder, ignore_errors=True)
    return context


def _environment(place: World) -> dict[str, str]:
    return {
        "MASTER_ADDR": place.address,
        "MASTER_PORT": str(place.port),
        "RANK": str(place.rank),
        "WORLD_SIZE": str(place.size),
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(place.local_size),
        "PJRT_LOCAL_PROCESS_RANK": str(place.local_rank),
        "PJRT_LOCAL_PROCESS_COUNT": str(place.local_size),
        "CPU_NUM_DEVICES": "1",
        _LAUNCHED: "1",
    }


@contextlib.contextmanager
def _environ(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _wait(context: ProcessContext) -> None:
    """Return when all ranks have ended. However the wait ends, no rank remains."""
    try:
        while not context.join(grace_period=GRACE_S):
            pass
    except ProcessRaisedException as error:
        raise _first_cause(context, error) from None
    except ProcessExitedException as error:
        lines = (line for _, trace in _traces(context) for line in trace.splitlines() if _FAILURE in line)
        known = next((line.partition(_FAILURE)[2] for line in lines), "")
        error.args = (f"{error.msg} ({known})" if known else error.msg,)
        raise
    finally:
        alive = [process for process in context.processes if process.is_alive()]
        if alive:  # Ctrl-C, which a terminal sends to the ranks too
            context._join_procs_with_timeout(GRACE_S if isinstance(sys.exception(), KeyboardInterrupt) else 0)
            for process in alive:
                process.terminate()
            context._join_procs_with_timeout(GRACE_S)
            for process in alive:
                process.kill()
        shutil.rmtree(os.path.dirname(context.error_files[0]), ignore_errors=True)


def _first_cause(context: ProcessContext, error: ProcessRaisedException) -> ProcessRaisedException:
    """The error of the rank that failed first, not of one that failed because of another."""
    if _FAILURE in error.msg:
        for index, trace in _traces(context):
            if _FAILURE not in trace:
                message = f"\n\n-- Process {index} terminated with the following error:\n{trace}"
                return ProcessRaisedException(message, index, context.processes[index].pid)
    return error


def _traces(context: ProcessContext) -> Iterator[tuple[int, str]]:
    """The tracebacks of the ranks that raised, with their numbers here."""
    for index, name in enumerate(context.error_files):
        with contextlib.suppress(OSError), open(name, "rb") as file:
            yield index, pickle.load(file)


# -- in the rank --------------------------------------------------------------------------------------


def _rank(
    fn: Callable[..., Any],
    index: int,
    args: tuple[Any, ...],
    error_file: str,
    environment: dict[str, str],
    recording: _Recording | None,
) -> None:
    os.environ.update(environment)
    faults.error_file = error_file
    _end_with_parent()
    _wrap(_program, index, (fn, args, recording), error_file)


def _program(index: int, fn: Callable[..., Any], args: tuple[Any, ...], recording: _Recording | None) -> None:
    if recording is not None:
        recorder.record(recording.path, detail=recording.detail, joinable=True, mode=recording.mode).start()
    error: BaseException | None = None
    try:
        world.join()
        fn(index, *args)
        if tapes.existing():
            barrier.wait_for()
    except BaseException as caught:
        error = caught
        world.failed(caught)
        raise
    finally:
        if error is None:  # a forked process ends without running what was registered for its exit
            world.leave()


def _end_with_parent() -> None:
    """No rank outlives the process that launched it, however that ended."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        warn(f"rank {os.environ['RANK']} ends: its launcher is gone")
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="xlaprof-parent", daemon=True).start()


# -- as in torch_xla.distributed.xla_multiprocessing --------------------------------------------------


class MpModelWrapper:
    """A model that each rank moves to its device in turn, so that the host's memory holds few copies at a time."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._lock = torch_mp.get_context("spawn").Lock()

    def to(self, device: Any) -> Any:
        """The model, on ``device``."""
        with self._lock:
            self._model.to(device)
        return self._model


class MpSerialExecutor:
    """Runs a function in one rank after the other."""

    def __init__(self) -> None:
        self._lock = torch_mp.get_context("spawn").Lock()

    def run(self, fn: Callable[[], Any]) -> Any:
        """``fn()``, while no other rank runs one."""
        with self._lock:
            return fn()
