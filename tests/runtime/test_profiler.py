"""The profiler's API: scopes in recordings, in jax's profiles and on the device; profiles that TensorBoard opens."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import threading
from pathlib import Path

import pytest
import torch

import xlaprof.runtime as xr
import xlaprof.runtime.profiler as xp
from tests.export.ask import Tools
from tests.recording import recording
from xlaprof.runtime.transfer.loader import MpDeviceLoader

from .counting import counted

D = torch.device("xla")


def _profile(folder: Path) -> Path:
    (path,) = folder.glob("plugins/profile/*/*.xplane.pb")
    return path


def test_a_scope_is_the_recordings_own(tmp_path: Path) -> None:
    with recording(tmp_path / "run.log") as recorded:
        with xp.Trace("forward", layer=3), xp.Trace("attention"):
            torch.ones(2, device=D).exp()

        @xp.trace_me("loss")
        def loss() -> int:
            return 7

        assert loss() == 7
        with pytest.raises(KeyError), xp.Trace("wrong"):
            raise KeyError
    log = recorded()
    assert log.scopes == [("attention", 1), ("forward", 0), ("loss", 0), ("wrong", 0)]


def test_a_scope_may_be_entered_inside_itself_and_left_in_any_order() -> None:
    from xlaprof.runtime.trace import source

    again = xp.Trace("again")
    with again, again:
        assert source.scopes() == ["again", "again"]
    first, second = xp.Trace("first"), xp.Trace("second")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert source.scopes() == ["second"]
    second.__exit__(None, None, None)
    assert source.scopes() == []


def test_a_step_ends_with_a_barrier(tmp_path: Path) -> None:
    x = torch.ones(3, device=D)
    with recording(tmp_path / "run.log") as recorded, counted() as counts:
        for i in range(3):
            with xp.StepTrace("train", step_num=i):
                x = x * 0.75
    assert counts["MarkStep"] == 3
    assert counts.runs == 3
    assert recorded().steps == [("train", 0), ("train", 1), ("train", 2)]


def test_the_loader_leaves_the_barrier_to_the_step() -> None:
    batches = [torch.full((2,), float(i)) for i in range(4)]
    with counted() as counts:
        for x in MpDeviceLoader(batches, D):
            with xp.StepTrace("train"):
                x + 1.5
    assert counts["MarkStep"] == 4 + 1  # one a step, and the loader's at its end


def test_a_profile_of_this_process_has_the_scopes_of_host_and_device(tmp_path: Path) -> None:
    x = torch.rand(64, 64).to(D)
    xp.start_trace(tmp_path)
    with pytest.raises(RuntimeError, match="Only one profile may be run at a time"):
        xp.start_trace(tmp_path)
    with xp.StepTrace("train_step", step_num=7), xp.Trace("build_graph", part="all"):
        y = (x @ torch.eye(64).to(D)).tanh()
    xr.wait_device_ops()
    y.cpu()
    xp.stop_trace()
    del y
    with pytest.raises(RuntimeError, match="No profile started"):
        xp.stop_trace()
    xprof = Tools(_profile(tmp_path))
    events = xprof.trace()
    (scope,) = [e for e in events if e["name"] == "build_graph"]
    (step,) = [e for e in events if e["name"] == "train_step 7"]  # a step to XProf, which adds the number
    assert step["ts"] <= scope["ts"] <= scope["ts"] + scope["dur"] <= step["ts"] + step["dur"]
    assert xprof.details(scope)["part"] == "all"
    device = _profile(tmp_path).read_bytes()
    assert re.search(rb"train_step/build_graph/test_profiler\.py:\d+", device)
    for call in (b"TransferToDevice", b"Compile", b"ExecuteComputation", b"TransferFromDevice"):
        assert b"PjRtComputationClient::" + call in device


def test_a_server_needs_a_port_that_is_free() -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        port = taken.getsockname()[1]
        with pytest.raises(RuntimeError, match=f"no profiler server on port {port}: .*choose another port"):
            xp.start_server(port)
    with pytest.raises(RuntimeError, match="no profiler server on port 70000"):
        xp.start_server(70000)


def listening(port: int) -> list[bytes]:
    """The interfaces to which what listens on ``port`` in this process is tied."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.fromfd(int(fd), socket.AF_INET6, socket.SOCK_STREAM) as one:
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and one.getsockname()[1] == port:
                found.append(one.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).strip(b"\0"))
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere a warning says that all may connect")
def test_a_server_is_for_this_host_unless_told_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    server = xp.start_server(port)
    assert set(listening(port)) == {b"lo"}
    socket.create_connection(("127.0.0.1", port), timeout=10).close()
    del server
    assert capsys.readouterr().err == ""
    port = free_port()
    server = xp.start_server(port, host="0.0.0.0")
    assert set(listening(port)) == {b""}
    del server
    assert f"listens on all interfaces: whoever reaches port {port} may profile" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"host='10\.0\.0\.7'"):
        xp.start_server(port, host="10.0.0.7")


def test_only_the_first_process_of_a_host_has_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert xp.start_server(70000) is None


@pytest.mark.slow
def test_a_client_profiles_a_server(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    x = torch.rand(8, 8).to(D)
    server = xp.start_server(port)
    assert server is not None
    done = threading.Event()

    def client() -> None:
        xp.trace(f"localhost:{port}", str(tmp_path), duration_ms=500)
        done.set()

    thread = threading.Thread(target=client)
    thread.start()
    while not done.is_set() and thread.is_alive():
        with xp.StepTrace("train_mnist"), xp.Trace("build_graph"):
            x = (x @ x).tanh()
    thread.join()
    names = {event["name"].split()[0] for event in Tools(_profile(tmp_path)).trace()}
    assert {"train_mnist", "build_graph"} <= names
    with pytest.raises(RuntimeError, match="no second profiler server"):
        xp.start_server(port + 1)
    del server


@pytest.mark.slow
def test_a_client_gives_up_on_nobody() -> None:
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    with pytest.raises(RuntimeError, match=f"no profile from localhost:{port} in 0 s"):
        xp.trace(f"localhost:{port}", "nowhere", duration_ms=10, num_tracing_attempts=1, timeout_s=0)
