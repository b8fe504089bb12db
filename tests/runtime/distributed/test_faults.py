"""A rank that dies, hangs or is cut off: the others stop within half a minute, and say which rank it was.

What is planted: a rank is killed, stopped, or waits for ever, in a step, while the others are in the same step's
collective or at a meeting. What is looked for: every process has ended, in time, and the error names the rank and the
line it was last seen at.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.slow

WITHIN_S = 30

#: steps of training on each rank; in the fifth, rank 1 does what it was asked to
SCRIPT = """
    import os, signal, sys, threading, time
    import torch
    import xlaprof.runtime as xr
    from xlaprof.runtime import distributed as xd

    def trouble(kind):
        print("TROUBLE", time.time(), flush=True)
        if kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if kind == "waits":
            threading.Event().wait()
        if kind == "raises":
            raise ArithmeticError("planted")
        if kind == "slow":
            until = time.process_time() + 6
            while time.process_time() < until:
                torch.ones(300, 300) @ torch.ones(300, 300)

    def train(index, kind, where):
        w = torch.ones(4, device=xr.device(), requires_grad=True)
        for step in range(8):
            loss = (w * (index + step)).sum()
            loss.backward()
            if step == 5 and index == xd.world_size() - 1:
                trouble(kind)
            if where == "meeting" and step == 5:
                xd.rendezvous("epoch")
            xd.all_reduce("sum", [w.grad])
            xr.sync()
            with torch.no_grad():
                w -= 0.01 * w.grad
            w.grad = None
        print("DONE", index, w.sum().item(), flush=True)

    if __name__ == "__main__":
        start = sys.argv[3] if len(sys.argv) > 3 else "fork"
        xd.launch(train, (sys.argv[1], sys.argv[2]), nprocs=None if "RANK" in os.environ else 2, start_method=start)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(SCRIPT))
    return path


def begin(*command: str | Path, **environment: str) -> subprocess.Popen[str]:
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")} | environment
    return subprocess.Popen(
        [sys.executable, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, float]:
    """Its exit code, what it wrote, and seconds from the trouble to the end."""
    out, _ = process.communicate(timeout=180)
    began = [float(line.split()[1]) for line in out.splitlines() if line.startswith("TROUBLE")]
    return process.returncode, out, time.time() - began[0] if began else 0.0


def until_trouble(process: subprocess.Popen[str]) -> None:
    """Return when rank 1 is about to do what is planted."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("TROUBLE"):
            return
    raise AssertionError("the trouble never came")


def nobody_remains(script: Path) -> bool:
    """Do no processes of ``script`` run any more, and no coordinator of theirs?"""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return str(script) not in listed


@pytest.mark.parametrize(
    ("kind", "where", "said"),
    [
        ("killed", "step", "process 1 terminated with signal SIGKILL"),
        ("killed", "meeting", "is gone: its process ended; last seen at"),
        ("raises", "step", "ArithmeticError: planted"),
        ("waits", "step", "is stuck: nothing moved there for"),
        ("waits", "meeting", "is stuck: nothing moved there for"),
        ("stopped", "step", "has not answered for"),
    ],
)
def test_the_others_stop_and_name_the_rank(kind: str, where: str, said: str, script: Path) -> None:
    code, out, took = finish(begin(script, kind, where))
    assert code != 0, out
    assert said in out
    assert "rank 1" in out or "process 1" in out.lower()
    if kind == "waits":
        assert f"last seen at {script}:14" in out  # the line of the wait
    assert took < WITHIN_S, out
    assert "DONE" not in out
    assert nobody_remains(script)


def test_a_rank_that_is_slow_is_waited_for(script: Path) -> None:
    code, out, _ = finish(begin(script, "slow", "step", XLAPROF_COLLECTIVE_TIMEOUT="2"))
    assert code == 0, out
    assert out.count("DONE") == 2


def test_no_rank_outlives_its_launcher(script: Path) -> None:
    process = begin(script, "waits", "step", "spawn")
    until_trouble(process)
    process.kill()
    process.communicate(timeout=60)  # returns when the last process that writes there has ended
    assert nobody_remains(script)


def test_ctrl_c_ends_all(script: Path) -> None:
    process = begin(script, "waits", "step")
    until_trouble(process)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode not in (0, None)
    assert "KeyboardInterrupt" in out
    assert nobody_remains(script)


def test_the_same_program_under_torchrun(script: Path) -> None:
    code, out, _ = finish(
        begin("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script, "no", "step")
    )
    assert code == 0, out
    assert out.count("DONE") == 2


def test_a_rank_that_does_not_come_is_named(script: Path) -> None:
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29641", "WORLD_SIZE": "3", "XLAPROF_JOIN_TIMEOUT": "15"}
    processes = [begin(script, "no", "step", RANK=str(rank), **environment) for rank in (0, 2)]
    for process in processes:
        code, out, _ = finish(process)
        assert code != 0
        assert "rank 1 of 3 did not join within 15 s" in out


# -- two hosts ------------------------------------------------------------------------------------------


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Host(NamedTuple):
    """A network namespace, and the end of a cable in it."""

    name: str
    cable: str

    def unplug(self) -> None:
        _ip("-n", self.name, "link", "set", self.cable, "down")


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    """Two hosts with a cable between them."""
    two = [Host(f"xlaprof-{os.getpid()}-{side}", f"xp{os.getpid()}{side}") for side in "ab"]
    if shutil.which("ip") is None:
        pytest.skip("two hosts need network namespaces: no ip command here")
    try:
        _ip("netns", "add", two[0].name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"two hosts need network namespaces, which are not permitted here: {error.stderr.decode().strip()}")
    try:
        _ip("netns", "add", two[1].name)
        _ip("link", "add", two[0].cable, "type", "veth", "peer", "name", two[1].cable)
        for number, (name, cable) in enumerate(two, 1):
            _ip("link", "set", cable, "netns", name)
            _ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", cable)
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", cable, "up")
        yield two
    finally:
        for host in two:
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", host.name)


def on(hosts: list[Host], script: Path, kind: str, **environment: str) -> list[subprocess.Popen[str]]:
    shared = {"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29655"} | environment
    return [
        subprocess.Popen(
            ["ip", "netns", "exec", host.name, sys.executable, str(script), kind, "step"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **shared, "RANK": str(rank), "WORLD_SIZE": "2"},
        )
        for rank, host in enumerate(hosts)
    ]


def test_two_hosts_train_together(hosts: list[Host], script: Path) -> None:
    results = [finish(process) for process in on(hosts, script, "no")]
    assert [code for code, *_ in results] == [0, 0], results
    done = [next(line.split()[2] for line in out.splitlines() if line.startswith("DONE")) for _, out, _ in results]
    assert done[0] == done[1]


def test_a_host_that_is_cut_off_stops_and_so_does_the_other(hosts: list[Host], script: Path) -> None:
    processes = on(hosts, script, "waits", XLAPROF_COLLECTIVE_TIMEOUT="0")  # it is the cable that has to be noticed
    until_trouble(processes[1])
    hosts[1].unplug()
    cut = time.time()
    outs = [process.communicate(timeout=120)[0] for process in processes]
    assert time.time() - cut < WITHIN_S
    assert all(process.returncode not in (0, None) for process in processes)
    assert "rank 1 (" in outs[0]
    assert "is gone: its host cannot be reached" in outs[0]
    assert "rank 1 is cut off from the coordinator on rank 0's host (10.77.0.1)" in outs[1]
