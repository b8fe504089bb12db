"""The world: the processes of one program, one device each, and how this one joins it.

The environment describes it, set by torchrun, ``launch`` or the user: MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE,
LOCAL_RANK, LOCAL_WORLD_SIZE. To join it, a rank reads the coordinator's address from a store at MASTER_PORT
(torchrun's own, if it has one), opens a link to the coordinator (:mod:`.link`) and waits there for all ranks, then
connects ``jax.distributed``, whose collectives on the CPU are gloo's.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from typing import Any

import jax
import numpy as np
from jax._src import distributed as jax_distributed
from jax._src import xla_bridge
from jaxlib import _jax
from torch._C._distributed_c10d import PrefixStore, TCPStore

from xlaprof.runtime.dynamo.constants import constant
from xlaprof.runtime.tape import tapes

from . import coordinator, faults
from .link import Link, Refused


@dataclass(frozen=True)
class World:
    """This process's place among all: ``rank`` of ``size``, and on its host ``local_rank`` of ``local_size``."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    address: str = "127.0.0.1"
    port: int = 0


class WorldError(RuntimeError):
    """The world cannot be joined. The message says in one line why, and what to do."""


#: environment variable with what ranks show the coordinator. ``launch`` sets it for the ranks of one host. If nobody
#: does, rank 0 makes one: torchrun's ranks of one host read it from a file of their user's, others from the store at
#: MASTER_PORT, where all who reach that port may read it.
TOKEN = "XLAPROF_JOB_TOKEN"

_WAITING = 2048  # connections to the store, as torch has it

_world: World | None = None
_link: Link | None = None
_kept: list[Any] = []  # the store and the coordinator's process


def current() -> World:
    """The world this process has joined; a world of one if it has joined none."""
    return _world or World()


def link() -> Link | None:
    """The connection to the coordinator; ``None`` in a world of one."""
    return _link


def from_environment() -> World | None:
    """The world that the environment describes; ``None`` where it names no rank.

    Raises :class:`WorldError` where a variable is no number or variables contradict each other.
    """
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return None
    rank, size = _number("RANK"), _number("WORLD_SIZE")
    local_size = _number("LOCAL_WORLD_SIZE", 1)
    local_rank = _number("LOCAL_RANK", rank % local_size if local_size else 0)
    if not 0 <= rank < size:
        raise WorldError(
            f"RANK={rank} is none of WORLD_SIZE={size}: ranks are 0 to {size - 1}; give the processes fewer RANKs or "
            "all of them a larger WORLD_SIZE"
        )
    if not 0 <= local_rank < local_size and "LOCAL_WORLD_SIZE" in os.environ:
        raise WorldError(f"LOCAL_RANK={local_rank} is none of LOCAL_WORLD_SIZE={local_size}")
    port = _number("MASTER_PORT", 29500 if size > 1 else 0)
    if not 0 <= port < 65536:
        raise WorldError(f"MASTER_PORT={port} is no port: choose one from 1024 to 65535")
    return World(rank, size, local_rank, local_size, os.environ.get("MASTER_ADDR", "127.0.0.1"), port)


def _number(name: str, default: int | None = None, kind: Callable[[str], Any] = int) -> Any:
    text = os.environ.get(name)
    if text is None and default is not None:
        return default
    try:
        return kind(text or "")
    except ValueError:
        raise WorldError(f"{name}={text} is no number{' of seconds' if kind is float else ''}") from None


def should_join() -> bool:
    """Was this process started as one of several, by ``launch`` or torchrun, and has not joined the others yet?

    RANK and WORLD_SIZE alone do not tell: a program may have them for another library.
    """
    if _world is not None or int(os.environ.get("WORLD_SIZE") or "1") < 2:
        return False
    return "XLAPROF_LAUNCHED" in os.environ or "TORCHELASTIC_RUN_ID" in os.environ


def join(target: World | None = None) -> World:
    """Join the world ``target``, by default the environment's. Does nothing the second time.

    Raises :class:`WorldError` where ranks are missing, too many or disagree about their number, where ports are taken,
    or where this process has used its device already.
    """
    global _world, _link
    if _world is not None:
        return _world
    target = target or from_environment() or World()
    if target.size == 1:
        _world = target
        return target
    if xla_bridge.backends_are_initialized():
        raise WorldError("Runtime is already initialized. Do not use the XLA device before calling xmp.spawn.")
    timeout = _number("XLAPROF_JOIN_TIMEOUT", 300, float)
    store = _store(target, timeout)
    folder = (
        tempfile.TemporaryDirectory(prefix="xlaprof-job-") if target.rank == 0 and _has_private_files(target) else None
    )
    if target.rank == 0:
        there = _start_coordinator(target, timeout)
        store.set("coordinator", _kept_private(folder.name, there) if folder else there)
    host, port, jax_port, token = _ask(store, target, timeout)
    hello = {
        "token": token,
        "rank": target.rank,
        "world": target.size,
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }
    try:
        _link = Link((host, port), hello, faults.on_verdict, host)
        faults.blame = _link.blame
        _link.wait_for_welcome(timeout + 10)
    except Refused as error:
        raise WorldError(str(error)) from None
    except OSError as error:
        raise WorldError(f"rank {target.rank} cannot reach rank 0's coordinator at {host}:{port}: {error}") from None
    finally:
        if folder is not None:  # all have read it, or none will
            folder.cleanup()
    failure = faults.verdict()
    if failure is not None:
        raise WorldError(str(failure))
    _join_jax(target, f"{host}:{jax_port}")
    if device_kind() == "CPU":
        _connect(target)
        faults.before_abort(_link)
    os.environ.setdefault("PJRT_LOCAL_PROCESS_RANK", str(target.local_rank))
    os.environ.setdefault("PJRT_LOCAL_PROCESS_COUNT", str(target.local_size))
    _world = target
    atexit.register(leave)
    return target


def leave() -> None:
    """Wait until all ranks' programs have ended, so that none loses a connection it still uses."""
    global _link
    if _link is None:
        return
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)  # at a prompt the program goes on
    if error is not None and not isinstance(error, KeyboardInterrupt):
        failed(error)
    leaving, _link, faults.blame = _link, None, None
    if leaving.verdict is None:
        leaving.leave()
    # the program ended without an error, but with wrong results
    if leaving.wrong and error is None and leaving.verdict is not None:
        faults.end(f"xlaprof: {leaving.verdict[1]}")


def failed(error: BaseException) -> None:
    """Report to the others that ``error`` ends this rank."""
    if _link is not None and _link.verdict is None:
        text = str(error).strip().splitlines()
        why = f"{type(error).__name__}: {text[0] if text else ''}".rstrip(": ")
        _link.send({"kind": "failed", "why": why})


def store() -> Any:
    """torch's store at MASTER_PORT, which all ranks of a joined world share."""
    return next(kept for kept in _kept if isinstance(kept, TCPStore))


def device_kind() -> str:
    """``"CPU"``, ``"CUDA"`` or ``"TPU"``: the kind of the ranks' devices, found without using one."""
    named = os.environ.get("PJRT_DEVICE", "").upper().partition("_")[0]
    if named:
        return {"GPU": "CUDA"}.get(named, named)
    plugins = any(find_spec(f"jax_cuda{version}_plugin") for version in (12, 13))
    return "CUDA" if plugins and os.path.exists("/dev/nvidiactl") else "CPU"


# -- joining ------------------------------------------------------------------------------------------


def _store(target: World, timeout: float) -> Any:
    """torch's store at MASTER_PORT: torchrun's, or one that rank 0 opens and ``init_process_group`` may share."""
    agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    serve = target.rank == 0 and not agents
    listener = _listener(target) if serve else None
    try:
        store: Any = TCPStore(
            target.address,
            target.port,
            target.size,
            serve,
            timeout=timedelta(seconds=timeout),
            wait_for_workers=False,
            multi_tenant=True,
            master_listen_fd=listener,
        )
    except Exception as error:
        text = str(error).splitlines()[0]
        raise WorldError(
            f"rank {target.rank} finds no rank 0 at MASTER_ADDR={target.address}, MASTER_PORT={target.port} "
            f"within {timeout:.0f} s: start it, or correct the address ({text})"
        ) from None
    _kept.append(store)
    run, attempt = os.environ.get("TORCHELASTIC_RUN_ID", ""), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return PrefixStore(f"xlaprof/{run}/{attempt}", store)


def _listener(target: World) -> int | None:
    """The socket of the store of a job of one host, which torch would open on all interfaces; ``None``: torch opens it.

    Raises :class:`WorldError` where the port is taken.
    """
    local = _own_address(target).startswith("127.")
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((target.address if local else "", target.port))
            if local:
                listener.listen(_WAITING)
                return listener.detach()
        except OSError as error:
            raise WorldError(
                f"rank 0 cannot listen at MASTER_PORT={target.port} ({error.strerror}): another program, or another "
                "process with RANK=0, has it; choose another MASTER_PORT for all ranks"
            ) from None
    return None


def _ask(store: Any, target: World, timeout: float) -> tuple[str, int, int, str]:
    try:
        store.wait(["coordinator"], timedelta(seconds=timeout))
        there = store.get("coordinator").decode()
        if _has_private_files(target):
            there = _read_private(there)
        host, port, jax_port, token = there.split()
    except WorldError:
        raise
    except Exception as error:
        raise WorldError(
            f"rank {target.rank} waited {timeout:.0f} s for rank 0 at {target.address}:{target.port}: start all "
            f"{target.size} ranks ({str(error).splitlines()[0]})"
        ) from None
    return host, int(port), int(jax_port), os.environ.get(TOKEN, token)


def _start_coordinator(target: World, timeout: float) -> str:
    """Start the coordinator beside rank 0; return what ranks need to reach it: host, ports and token."""
    host = _own_address(target)
    token = os.environ.get(TOKEN) or secrets.token_hex(16)
    patience = _number("XLAPROF_COLLECTIVE_TIMEOUT", 15, float)
    command = [sys.executable, coordinator.__file__, host, str(target.size), str(patience), str(timeout)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    _kept.append(process)
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):  # it did not start: said below
        process.stdin.write(f"{token}\n".encode())
        process.stdin.flush()
    ports = process.stdout.readline().decode().split()
    if len(ports) != 2:
        raise WorldError(f"the coordinator of the {target.size} ranks did not start (exit code {process.wait()})")
    return f"{host} {ports[0]} {ports[1]} {'-' if TOKEN in os.environ else token}"


def _has_private_files(target: World) -> bool:
    """Do files of this user, and no others', reach all ranks? torchrun starts those of one host as its children."""
    return "TORCHELASTIC_RUN_ID" in os.environ and target.local_size == target.size and TOKEN not in os.environ


def _kept_private(folder: str, text: str) -> str:
    """The path of a file with ``text`` that this user alone may read."""
    path = os.path.join(folder, "coordinator")
    with open(path, "x", opener=partial(os.open, mode=0o600)) as file:
        file.write(text)
    return path


def _read_private(path: str) -> str:
    """What :func:`_kept_private` wrote; whoever reaches the store may have put another path there."""
    try:
        with open(path, opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
            status = os.fstat(file.fileno())
            if status.st_uid == os.geteuid() and stat.S_ISREG(status.st_mode) and not status.st_mode & 0o077:
                return file.read()
        why = "is not this user's alone"
    except OSError as error:
        why = f"cannot be read ({error.strerror})"
    raise WorldError(f"what rank 0 left in {path} {why}: set {TOKEN} to the same secret for all ranks") from None


def _own_address(target: World) -> str:
    """The address from which this host reaches rank 0's, and at which the others reach this host."""
    try:
        family, kind, _, _, to = socket.getaddrinfo(
            target.address, target.port or 1, socket.AF_INET, socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind) as probe:
            probe.connect(to)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise WorldError(f"MASTER_ADDR={target.address} has no address here ({error}): correct it") from None


def _join_jax(target: World, address: str) -> None:
    """As ``jax.distributed.initialize``, which has no option for gloo's address."""
    if any(name.lower() in ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy") for name in os.environ):
        os.environ.setdefault("no_grpc_proxy", address.partition(":")[0])  # the other hosts are not behind it
    state = jax_distributed.global_state
    state.coordinator_address, state.process_id, state.num_processes = address, target.rank, target.size
    state.client = _jax.get_distributed_runtime_client(
        address,
        target.rank,
        init_timeout=60,
        heartbeat_timeout=7 * 86400,  # the link watches; jax would end the process from C++
        shutdown_timeout=1,
        shutdown_on_destruction=False,
        use_compression=True,
    )
    state.client.connect()
    interface = os.environ.get("GLOO_SOCKET_IFNAME")
    mine = _own_address(target)

    def cpu_client() -> Any:
        gloo = _jax.make_gloo_tcp_collectives(state.client, hostname=None if interface else mine, interface=interface)
        return xla_bridge.make_cpu_client(collectives=gloo)

    xla_bridge.register_backend_factory("cpu", cpu_client, priority=0, fail_quietly=False)
    if device_kind() == "CUDA":
        jax.config.update("jax_cuda_visible_devices", str(target.local_rank))


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Keep off standard output what gloo prints, from C++, when ranks first connect."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _connect(target: World) -> None:
    """Sum 1 over all ranks, to raise now where their hosts do not reach each other."""
    try:
        with quietly():
            first = {device.process_index: device for device in reversed(jax.devices("cpu"))}
            mesh = jax.sharding.Mesh(np.array([first[rank] for rank in range(target.size)]), ("ranks",))
            every = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("ranks"))
            shares = jax.make_array_from_callback((target.size,), every, lambda _: np.ones(1, np.int32))
            none = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
            total = jax.jit(jax.numpy.sum, out_shardings=none)(shares)
            total.addressable_data(0).block_until_ready()
    except Exception as error:
        failure = faults.of_collective(error)
        raise WorldError(
            str(failure)
            if failure is not None
            else f"rank {target.rank} cannot compute with the others (GLOO_SOCKET_IFNAME names the network interface "
            f"they share): {str(error).splitlines()[0]}"
        ) from None


# -- under PyTorch/XLA's names ------------------------------------------------------------------------


def world_size() -> int:
    """Number of processes (one device each) of the job; 1 outside of one."""
    return current().size


def global_ordinal() -> int:
    """This process's number among all: 0 to ``world_size() - 1``."""
    return current().rank


def local_ordinal() -> int:
    """This process's number among those of its host: 0 to ``local_device_count() - 1``."""
    return current().local_rank


def local_process_count() -> int:
    """Number of processes of the job on this host."""
    return current().local_size


def host_index() -> int:
    """The number of this host: 0 in a job of one host."""
    for name in ("GROUP_RANK", "NODE_RANK"):
        if name in os.environ:
            return int(_number(name))
    here = current()
    return here.rank // here.local_size


def addressable_device_count() -> int:
    """Number of ``xla`` devices of this process."""
    return tapes.count()


def local_device_count() -> int:
    """Number of ``xla`` devices of the job on this host."""
    return local_process_count() * addressable_device_count()


def global_device_count() -> int:
    """Number of ``xla`` devices of the job, over all processes and hosts."""
    return current().size * addressable_device_count()


def get_master_ip() -> str:
    """The address of rank 0's host."""
    try:
        return socket.gethostbyname(current().address)
    except OSError as error:
        raise WorldError(f"MASTER_ADDR={current().address} has no address here ({error}): correct it") from None


process_index, process_count = global_ordinal, world_size  # a process has one rank

# Constants to Dynamo: none changes while a program runs, so none has to break the graph.
for _function in (
    world_size, global_ordinal, local_ordinal, local_process_count, addressable_device_count, local_device_count,
    global_device_count,
):  # fmt: skip
    constant(_function)
