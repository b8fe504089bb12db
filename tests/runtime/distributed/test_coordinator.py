"""The coordinator, without devices: who may join, and what is said of ranks that do not answer, differ or go.

The process is the real one. The ranks are connections of this test, which say what it makes them say.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from xlaprof.runtime.distributed.job import coordinator
from xlaprof.runtime.distributed.job.link import Link, Refused

TOKEN = "secret"


class Rank:
    """A connection that says what it is asked to, and listens."""

    def __init__(self, port: int, **hello: Any) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(30)
        self.say("hello", **{"token": TOKEN, "host": "here", "pid": 1, "world": 2, **hello})

    def say(self, kind: str, **rest: Any) -> None:
        self.socket.sendall(coordinator.pack({"kind": kind, **rest}))

    def beat(self, doing: str, *, idle: float = 0.0, waits: str = "", waited: float = 0.0) -> None:
        self.say("beat", doing=doing, idle=idle, waits=waits, waited=waited)

    def hears(self, *kinds: str) -> dict[str, Any]:
        """The next message of one of these kinds."""
        while True:
            head, body = coordinator.FRAME.unpack(self._exactly(coordinator.FRAME.size))
            message: dict[str, Any] = json.loads(self._exactly(head))
            self._exactly(body)
            if message["kind"] in kinds:
                return message

    def close(self) -> None:
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            assert chunk, "the coordinator closed the connection"
            data += chunk
        return data


class Coordinator:
    """A coordinator's process, and who is connected to it."""

    def __init__(self, world: int = 2, patience: float = 0, join_timeout: float = 60) -> None:
        command = [sys.executable, coordinator.__file__, "127.0.0.1", str(world), str(patience), str(join_timeout)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{TOKEN}\n".encode())
        self.process.stdin.flush()
        self.port = int(self.process.stdout.readline().split()[0])
        self.verdicts: list[tuple[int, str]] = []
        self.connected: list[Rank | Link] = []

    def rank(self, number: int, **hello: Any) -> Rank:
        self.connected.append(rank := Rank(self.port, rank=number, **hello))
        return rank

    def link(self, number: int) -> Link:
        hello = {"token": TOKEN, "rank": number, "world": 2, "host": "here", "pid": os.getpid()}
        link = Link(("127.0.0.1", self.port), hello, lambda rank, why: self.verdicts.append((rank, why)), "here")
        self.connected.append(link)
        return link

    def end(self) -> None:
        for each in self.connected:
            each.close()
        self.process.kill()
        _, complaints = self.process.communicate()
        assert b"Traceback" not in complaints


Start = Callable[..., Coordinator]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a coordinator."""
    started: list[Coordinator] = []

    def start(**options: Any) -> Coordinator:
        started.append(job := Coordinator(**options))
        return job

    yield start
    for job in started:
        job.end()


def test_the_world_is_complete_when_all_are_there(start: Start) -> None:
    job = start()
    first = job.rank(0)
    assert not select.select([first.socket], [], [], 0)[0]
    second = job.rank(1)
    first.hears("welcome")
    second.hears("welcome")


def test_a_rank_that_is_taken_is_refused_and_nobody_else_is_harmed(start: Start) -> None:
    job = start()
    first, other = job.rank(0, pid=17), job.rank(0, pid=18)
    why = other.hears("refused")["why"]
    assert why == "rank 0 of 2 is there already (here, pid 17): give each process a RANK of its own"
    job.rank(1).hears("welcome")
    first.hears("welcome")


def test_a_rank_of_a_world_of_another_size_stops_all(start: Start) -> None:
    job = start()
    first, other = job.rank(0), job.rank(1, world=4)
    assert "rank 1 (here, pid 1) was started for 4 ranks, rank 0 for 2" in other.hears("refused")["why"]
    assert first.hears("verdict")["rank"] == 1


def test_ranks_that_do_not_come_are_named(start: Start) -> None:
    job = start(world=4, join_timeout=0.5)
    verdict = job.rank(0, world=4).hears("verdict")
    assert "ranks 1, 2, 3 of 4 did not join within" in verdict["why"]
    assert "WORLD_SIZE" in verdict["why"]


def test_a_stranger_is_not_listened_to(start: Start) -> None:
    job = start()
    stranger = job.rank(0, token="guessed")
    assert stranger.socket.recv(1) == b""
    job.rank(0)
    job.rank(1).hears("welcome")


@pytest.mark.parametrize(
    "noise",
    [
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        coordinator.FRAME.pack(300 << 20, 0),
        coordinator.FRAME.pack(2, 300 << 20) + b"{}",
        coordinator.FRAME.pack(4, 0) + b"\xff\xfe{}",
        coordinator.FRAME.pack(2000, 0) + b"[" * 2000,
        coordinator.pack({"token": TOKEN}),
        coordinator.pack({"token": ["secret"], "rank": 0, "world": 2, "host": "", "pid": 1}),
        coordinator.pack({"token": TOKEN, "rank": [], "world": 2, "host": "", "pid": 1}),
        coordinator.pack({"token": "\ud800", "rank": 0, "world": 2, "host": "", "pid": 1}),
    ],
    ids=range(9),
)
def test_noise_is_cut_off_at_once_and_nothing_is_said_of_it(start: Start, noise: bytes) -> None:
    """Neither 300 MB that are announced are waited for, nor does the first message hold more than a name."""
    job = start()
    with socket.create_connection(("127.0.0.1", job.port), timeout=5) as stranger:
        stranger.sendall(noise)
        assert stranger.recv(1) == b""
    job.rank(0)
    job.rank(1).hears("welcome")


def test_the_token_is_on_no_command_line(start: Start) -> None:
    with open(f"/proc/{start().process.pid}/cmdline", "rb") as file:
        assert TOKEN.encode() not in file.read()


def test_a_rank_that_dies_is_named_with_what_it_last_did(start: Start) -> None:
    job = start()
    first, second = job.rank(0), job.rank(1)
    second.hears("welcome")
    second.beat("train.py:31")
    second.say("meet", tag="epoch 3", ranks=[1], id=1)
    second.hears("met")
    second.close()
    verdict = first.hears("verdict")
    assert verdict["rank"] == 1
    assert verdict["why"] == (
        "rank 1 (here, pid 1) is gone: its process ended; last seen at train.py:31, last meeting 'epoch 3'"
    )


def test_a_rank_that_fails_says_why(start: Start) -> None:
    job = start()
    first, second = job.rank(0), job.rank(1)
    second.hears("welcome")
    second.say("failed", why="ValueError: bad batch")
    assert first.hears("verdict")["why"] == "rank 1 (here, pid 1) failed: ValueError: bad batch"


def test_a_rank_where_nothing_moves_is_stuck_once_others_wait_for_it(start: Start) -> None:
    job = start(patience=1)
    first, second = job.rank(0), job.rank(1)
    second.hears("welcome")
    second.beat("load.py:7", idle=100)
    first.beat("train.py:12", waits="'epoch' (train.py:12)", waited=100)
    why = first.hears("verdict")["why"]
    assert why.startswith("rank 1 (here, pid 1) is stuck: nothing moved there for 100 s while rank 0 waits at 'epoch'")
    assert why.endswith("last seen at load.py:7")


def test_a_rank_that_is_busy_may_be_as_slow_as_it_likes(start: Start) -> None:
    job = start(patience=1)
    first, second = job.rank(0), job.rank(1)
    second.hears("welcome")
    for _ in range(4):  # each pulse is a second
        second.beat("compile.py:7", idle=0)
        first.beat("train.py:12", waits="the device (train.py:12)", waited=100)
        assert first.hears("pulse", "verdict")["kind"] == "pulse"


def test_a_rank_that_does_not_answer_is_distinguished_from_one_that_is_slow(start: Start) -> None:
    job = start(patience=1)
    first, second = job.rank(0), job.rank(1)
    second.hears("welcome")
    second.beat("load.py:7")
    verdict = {"kind": "pulse"}
    while verdict["kind"] == "pulse":
        first.beat("train.py:12", waits="the device (train.py:12)", waited=100)
        verdict = first.hears("pulse", "verdict")
    assert "has not answered for" in verdict["why"]
    assert verdict["rank"] == 1


def test_ranks_that_wait_for_each_other_are_all_named(start: Start) -> None:
    job = start(patience=1)
    first, second = job.rank(0), job.rank(1)
    second.hears("welcome")
    first.beat("a.py:1", waits="'evaluation' (a.py:1)", waited=9)
    second.beat("b.py:2", waits="the device (b.py:2)", waited=8)
    why = first.hears("verdict")["why"]
    assert (
        why == "all ranks wait for each other since 8 s: rank 0 at 'evaluation' (a.py:1); rank 1 at the device (b.py:2)"
    )


def test_nobody_waits_for_a_rank_that_has_ended(start: Start) -> None:
    job = start()
    first, second = job.rank(0), job.rank(1)
    second.hears("welcome")
    second.say("leave")
    first.say("meet", tag="last", ranks=[0, 1], id=1)
    assert "rank 1 never comes to 'last', where rank 0 waited: its program has ended" in first.hears("verdict")["why"]


def test_links_meet_and_part(start: Start) -> None:
    job = start()
    links = [job.link(0), job.link(1)]
    for each in links:
        each.wait_for_welcome(30)
    large = os.urandom(3 << 20)
    results: dict[int, list[bytes] | None] = {}

    def program(rank: int, payload: bytes) -> None:
        results[rank] = links[rank].meet("data", payload, [0, 1])
        links[rank].leave()

    threads = [threading.Thread(target=program, args=(rank, part)) for rank, part in enumerate((large, b""))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {0: [large, b""], 1: [large, b""]}
    assert job.verdicts == []


def test_a_link_that_is_refused_says_why(start: Start) -> None:
    job = start()
    job.link(0)
    with pytest.raises(Refused, match="rank 0 of 2 is there already"):
        job.link(0).wait_for_welcome(30)
