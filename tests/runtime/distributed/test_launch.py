"""``launch``: one process per device, which know each other's number, meet, record, and end together."""

from __future__ import annotations

import io
import os
import re
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.multiprocessing import ProcessRaisedException

import xlaprof
import xlaprof.runtime as xr
from xlaprof.log import read
from xlaprof.runtime import distributed as xd
from xlaprof.runtime.distributed.job import faults, world

from . import ranks


def _listens(port: int) -> set[str]:
    """The addresses at which ``port`` listens on this host."""
    rows = [row.split() for file in ("tcp", "tcp6") for row in Path(f"/proc/net/{file}").read_text().splitlines()[1:]]
    return {row[1].partition(":")[0] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "0A"}


class Payload:
    """A pickle that would run code where it is read."""

    def __reduce__(self) -> Any:
        return eval, ("1/0",)


def everything(index: int, greeting: str) -> dict[str, Any]:
    """What a rank sees of its world."""
    reported = io.StringIO()
    xd.master_print(greeting, index, fd=reported)
    tensor = torch.full((2,), float(index), device=xr.device())
    with xlaprof.Trace(f"rank {index}"):
        seen = {
            "index": index,
            "sizes": [xd.world_size(), xd.process_count(), xd.local_process_count(), xd.local_device_count()],
            "devices": [xd.global_device_count(), xd.addressable_device_count(), xr.device_count()],
            "ordinals": [xd.global_ordinal(), xd.local_ordinal(), xd.process_index(), xd.host_index()],
            "device": str(tensor.device),
            "masters": [xd.is_master_ordinal(), xd.is_master_ordinal(local=False)],
            "reported": reported.getvalue(),
            "address": xd.get_master_ip(),
            "payloads": xd.rendezvous("payloads", b"of %d" % index),
            "empty": xd.rendezvous("empty"),
            "alone": xd.exchange("alone", b"me", ranks=[index]),
            "reduced": xd.mesh_reduce(
                "loss", {"loss": tensor.sum()}, lambda all: sum(one["loss"] for one in all).item()
            ),
            "arrays": xd.exchange_objects("arrays", {"mean": np.float64(index), "all": np.arange(2), "x": [(1, "a")]}),
            "listens": _listens(int(os.environ["MASTER_PORT"])),
            "published": world.store().get("xlaprof//0/coordinator").decode().split()[-1],
            "objects": xd.exchange_objects("objects", (index, tensor))[1 - index][1].device.type,
            "folder": (os.path.dirname(faults.error_file), os.stat(os.path.dirname(faults.error_file)).st_mode & 0o777),
            "environment": {
                name: os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
            },
        }
    with pytest.raises(TypeError, match=r"at 'code' not builtins\.eval: allow the class with"):
        xd.exchange_objects("code", Payload())
    with pytest.raises(TypeError, match="`payload` must be bytes"):
        xd.rendezvous("text", "text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"rank {index} is none of the ranks"):
        xd.exchange("others", ranks=[1 - index])
    with pytest.raises(RuntimeError, match=f"this process is rank {index} of 2 already"):
        xd.launch(everything, ("again",))
    assert xd.join() is xd.join()
    return seen


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Two ranks, launched by a process that records."""
    folder: Path = tmp_path_factory.mktemp("launched")
    with xlaprof.record(folder / "run.log", mode=0o640):
        return SimpleNamespace(folder=folder, ranks=ranks.run(everything, "rank"))


def test_ranks_know_their_place(launched: SimpleNamespace) -> None:
    for rank, seen in enumerate(launched.ranks):
        assert seen["index"] == rank
        assert seen["sizes"] == [2, 2, 2, 2]
        assert seen["devices"] == [2, 1, 1]
        assert seen["ordinals"] == [rank, rank, rank, 0]
        assert seen["environment"] == {
            "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"
        }  # fmt: skip


def test_the_device_of_each_rank_is_its_first(launched: SimpleNamespace) -> None:
    assert [seen["device"] for seen in launched.ranks] == ["xla:0", "xla:0"]


def test_one_rank_speaks_for_all(launched: SimpleNamespace) -> None:
    assert [seen["masters"] for seen in launched.ranks] == [[True, True], [False, False]]
    assert [seen["reported"] for seen in launched.ranks] == ["rank 0\n", ""]


def test_ranks_meet_and_exchange(launched: SimpleNamespace) -> None:
    for rank, seen in enumerate(launched.ranks):
        assert seen["payloads"] == [b"of 0", b"of 1"]
        assert seen["empty"] == [b"", b""]
        assert seen["alone"] == [b"me"]
        assert seen["reduced"] == 2.0
        assert seen["objects"] == "cpu"
        assert [one["mean"] for one in seen["arrays"]] == [0.0, 1.0]
        assert seen["arrays"][0]["all"].tolist() == [0, 1]
        assert seen["arrays"][1]["x"] == [(1, "a")]
        assert seen["listens"] == {"0100007F"}
        assert seen["published"] == "-"  # the token is in the ranks' environment
        assert seen["address"] == "127.0.0.1"
        assert rank == seen["index"]


def test_a_recording_goes_on_in_the_ranks_each_with_its_log(launched: SimpleNamespace) -> None:
    for rank in (0, 1):
        log = read(launched.folder / f"run.rank{rank}.log")
        assert (log.header.rank, log.header.world) == (rank, 2)
        assert log.header.host == socket.gethostname()
        assert f"rank {rank}" in {event.text for event in log if isinstance(event, xlaprof.events.Text)}
        assert (launched.folder / f"run.rank{rank}.log").stat().st_mode & 0o777 == 0o640


def test_what_ranks_leave_for_their_launcher_is_in_a_folder_of_its_user_alone_and_removed(
    launched: SimpleNamespace,
) -> None:
    ((folder, mode),) = {seen["folder"] for seen in launched.ranks}
    assert mode == 0o700
    assert not os.path.exists(folder)


def failing(index: int) -> None:
    if index == 1:
        raise ArithmeticError(f"planted in rank {index}")
    xd.rendezvous("never")


def test_an_exception_comes_with_the_traceback_of_the_rank_that_raised_it_first() -> None:
    with pytest.raises(ProcessRaisedException) as caught:
        ranks.run(failing)
    message = str(caught.value)
    assert "Process 1 terminated with the following error" in message
    assert "ArithmeticError: planted in rank 1" in message
    assert "in failing" in message
    assert repr(caught.value.__cause__) == "ArithmeticError('planted in rank 1')"


# -- without other processes ----------------------------------------------------------------------------


def test_one_process_is_this_one() -> None:
    assert xd.launch(lambda index, x: (index, x), (3,), nprocs=1) == (0, 3)
    assert xd.launch(lambda index: os.getpid(), debug_single_process=True) == os.getpid()
    assert xd.spawn(lambda index: (index, xd.world_size()), nprocs=1) == (0, 1)


def test_a_world_of_one_meets_itself() -> None:
    assert xd.rendezvous("alone", b"x") == [b"x"]
    assert xd.mesh_reduce("alone", torch.ones(2, device="xla"), lambda all: all[0].tolist()) == [1.0, 1.0]
    assert (xd.world_size(), xd.global_ordinal(), xd.local_ordinal(), xd.host_index()) == (1, 0, 0, 0)
    assert xd.is_master_ordinal()


def test_what_cannot_be_sent_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="define it at the top level of a module"):
        xd.launch(lambda index: None, nprocs=2)
    interactive = type(ranks.run)(ranks.run.__code__, {})
    interactive.__module__ = "__main__"
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)  # a worker of pytest has none
    with pytest.raises(ValueError, match=r"cannot send run .* interactive session.*start_method='fork'"):
        xd.launch(interactive, nprocs=2)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "<stdin>", raising=False)
    with pytest.raises(ValueError, match="interactive session"):
        xd.launch(everything, nprocs=2)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 is none of WORLD_SIZE=2: ranks are 0 to 1"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK=one is no number"),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "2"}, "LOCAL_RANK=3 is none of"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "99999"}, "MASTER_PORT=99999 is no port"),
    ],
)
def test_an_environment_that_contradicts_itself_is_refused(
    variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(world.WorldError, match=message):
        world.from_environment()


def test_a_timeout_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLAPROF_JOIN_TIMEOUT", "soon")
    with pytest.raises(world.WorldError, match="XLAPROF_JOIN_TIMEOUT=soon is no number of seconds"):
        world._number("XLAPROF_JOIN_TIMEOUT", 300, float)


def test_hosts_are_numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNODES", "2")
    monkeypatch.setenv("NODE_RANK", "2")
    with pytest.raises(ValueError, match="NODE_RANK=2 is none of NNODES=2"):
        xd.launch(everything, nprocs=2)
    monkeypatch.setenv("NODE_RANK", "1")
    with pytest.raises(ValueError, match="MASTER_ADDR or MASTER_PORT is not set"):
        xd.launch(everything, nprocs=2)


def test_another_number_of_processes_than_devices_is_refused_off_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PJRT_DEVICE", "CUDA")
    monkeypatch.setenv("GPU_NUM_DEVICES", "4")
    with pytest.raises(ValueError, match=r"Unsupported nprocs \(2\)\. Please use nprocs=1 or None"):
        xd.launch(everything, nprocs=2)


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        taken = rf"rank 0 cannot listen at MASTER_PORT={port} \(Address already in use\)"
        with pytest.raises(world.WorldError, match=taken):
            world._listener(world.World(0, 2, port=port))


def test_a_process_that_has_used_its_device_cannot_join() -> None:
    torch.ones(1, device="xla")
    with pytest.raises(world.WorldError, match="Runtime is already initialized"):
        world.join(world.World(0, 2, port=29500))


# -- in a process of its own ------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_program_of_the_documentation(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "distributed.md").read_text()
    (tmp_path / "train.py").write_text(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0])
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "2 ranks agree\n"), done.stderr


@pytest.mark.slow
def test_without_a_guard_the_script_is_asked_to_have_one(tmp_path: Path) -> None:
    script = "from xlaprof.runtime import distributed as xd\nxd.launch(print, nprocs=2)\n"
    (tmp_path / "train.py").write_text(script)
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "put the call of launch under if __name__ == '__main__':" in done.stderr


@pytest.mark.slow
def test_a_session_forks_its_ranks_until_it_has_used_its_device() -> None:
    session = """
        import torch, xlaprof.runtime
        from xlaprof.runtime import distributed as xd

        def fn(index):
            total = xd.all_reduce("sum", torch.ones(1, device="xla")).item()
            xd.master_print(xd.world_size(), total)

        xd.launch(fn, nprocs=2, start_method="fork")
        xd.launch(fn, nprocs=2, start_method="fork")
        torch.ones(1, device="xla").cpu()
        xd.launch(fn, nprocs=2, start_method="fork")
    """
    done = subprocess.run(
        [sys.executable, "-"], input=textwrap.dedent(session), capture_output=True, text=True, check=False
    )
    assert done.stdout == "2 2.0\n2 2.0\n", done.stderr
    assert "start_method='fork' needs a process that has not used its device" in done.stderr


@pytest.mark.slow
def test_hosts_that_launch_their_own_ranks(tmp_path: Path) -> None:
    script = """
        from xlaprof.runtime import distributed as xd

        def tell(index):
            seen = (index, xd.world_size(), xd.local_ordinal(), xd.local_process_count(), xd.host_index())
            xd.master_print(xd.exchange_objects("seen", seen))

        if __name__ == "__main__":
            xd.spawn(tell, nprocs=2, start_method="fork")
    """
    (tmp_path / "train.py").write_text(textwrap.dedent(script))
    shared = {"NNODES": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29663"}
    hosts = [
        subprocess.Popen(
            [sys.executable, "train.py"],
            cwd=tmp_path,
            env={**os.environ, **shared, "NODE_RANK": node},
            stdout=subprocess.PIPE,
            text=True,
        )
        for node in "01"
    ]
    first, second = (host.communicate(timeout=180)[0] for host in hosts)
    assert [host.returncode for host in hosts] == [0, 0]
    assert first == "[(0, 4, 0, 2, 0), (1, 4, 1, 2, 0), (2, 4, 0, 2, 1), (3, 4, 1, 2, 1)]\n"
    assert second == ""
