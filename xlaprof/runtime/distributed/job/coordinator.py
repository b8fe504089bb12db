"""The coordinator of a job: a process that rank 0 starts beside itself, and that outlives any rank.

It hosts jax's coordination service. A jax client that loses this service ends its process from within C++ and gives no
reason, so the service must not live in a rank, which may die.

It also watches the ranks. Each keeps one connection to it and reports once a second what it is doing. So it knows which
rank died (the connection ended), was cut off (the kernel's keepalive got no answer) or is stuck (it makes no progress
while others wait), and sends its verdict to all.

Run as a script, ``python coordinator.py ADDRESS WORLD PATIENCE JOIN_TIMEOUT``: it imports the standard library
and jaxlib alone, a third of a second. It reads the job's token, a line, from standard input, prints its two ports, and
ends when the ranks have. Who connects has to say the token first, in few bytes and soon.

A frame on the wire is the length of a JSON object and of a payload, the object, the payload. From a rank come
``hello``, ``beat``, ``meet`` (with a payload), ``outline`` and ``turns`` (:mod:`.ledger`), ``suspect`` (a collective
failed: who is to blame?), ``failed`` and ``leave``; to it go ``welcome``, ``refused``, ``pulse``, ``met`` (with
everyone's payloads), ``verdict`` and ``bye``.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import socket
import struct
import sys
import time
from dataclasses import dataclass, field
from typing import Any

if __package__:
    from .ledger import Ledger
else:  # run as a script, from this folder
    from ledger import Ledger  # type: ignore[import-not-found,no-redef]

FRAME = struct.Struct(">IQ")
PULSE_S = 1.0
#: about so many s without an answer of another host's kernel: that host is cut off
UNREACHABLE_S = 8
#: s without a message before a rank counts as silent
SILENT_S = 4.0
#: bytes of a first message, and s for it to come: whoever connects may send it
HELLO, HELLO_S = 4096, 10.0
#: bytes of a later message, without its payload
MESSAGE = 16 << 20
#: s that the process outlives the last rank, whose jax client would notice its end
LINGER_S = 1.0
#: s that it outlives rank 0 when other ranks do not end
ORPHAN_S = 40.0


def pack(message: dict[str, Any], payload: bytes = b"") -> bytes:
    """One frame."""
    head = json.dumps(message).encode()
    return FRAME.pack(len(head), len(payload)) + head + payload


def keep_alive(sock: socket.socket) -> None:
    """Make the kernel notice within :data:`UNREACHABLE_S` that the other host is gone."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 2), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREACHABLE_S * 1000)


class Member:
    """A rank as the coordinator sees it."""

    def __init__(self, hello: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self.rank: int = hello["rank"]
        self.world: int = hello["world"]
        self.where = f"{hello['host']}, pid {hello['pid']}"
        self.writer = writer
        self.heard = time.monotonic()
        self.doing = ""  # the user's line, as it last said
        self.idle = 0.0  # s without progress
        self.waits = ""  # what it waits at for others, and
        self.waited = 0.0  # for how many s
        self.joined = ""  # the last meeting it joined
        self.gone = ""  # why it has ended

    def last(self) -> str:
        """Its last known line and meeting."""
        parts = [f"at {self.doing}" if self.doing else "", f"last meeting '{self.joined}'" if self.joined else ""]
        known = ", ".join(part for part in parts if part)
        return f"; last seen {known}" if known else ""


@dataclass
class Meeting:
    """Ranks that wait for each other, with a payload from each."""

    tag: str
    ranks: list[int]
    payloads: dict[int, bytes] = field(default_factory=dict)
    requests: dict[int, int] = field(default_factory=dict)  # by rank: the number of its request


class Coordinator:
    """The coordinator's state: the ranks, their rendezvous, and its verdict once one has failed."""

    def __init__(self, world: int, token: str, patience: float, join_timeout: float) -> None:
        self.world = world
        self.token = token
        self.patience = patience  # s without progress while others wait, 0: for ever
        self.join_timeout = join_timeout
        self.members: dict[int, Member] = {}
        self.meetings: dict[Any, Meeting] = {}
        self.connections = 0
        self.complete = False
        self.verdict: dict[str, Any] | None = None
        self.ledger = Ledger()
        self.began = time.monotonic()

    # -- connections ------------------------------------------------------------------------------

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One rank, from its hello to the end of its connection."""
        keep_alive(writer.get_extra_info("socket"))
        hello = await self._greeted(reader)
        if hello is None:
            writer.close()
            return
        self.connections += 1
        member = None
        why = "its process ended"
        try:
            member = self._admit(hello, writer)
            while member is not None:
                message, payload = await _receive(reader)
                member.heard = time.monotonic()
                self._handle(member, message, payload)
        except TimeoutError:
            why = "its host cannot be reached"
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except OSError as error:
            why = f"its host cannot be reached ({error.strerror})"
        finally:
            self.connections -= 1
            if member is not None and not member.gone:
                member.gone = why
                self._blame(member.rank, f"rank {member.rank} ({member.where}) is gone: {why}{member.last()}")
            with contextlib.suppress(Exception):
                writer.close()

    async def _greeted(self, reader: asyncio.StreamReader) -> dict[str, Any] | None:
        """The hello of a rank; ``None`` where somebody else has connected, whatever that sends."""
        try:
            hello, _ = await asyncio.wait_for(_receive(reader, HELLO, 0), HELLO_S)
            known = hmac.compare_digest(hello["token"].encode(errors="replace"), self.token.encode())
            expected = {"rank": int, "world": int, "host": str, "pid": int}
            right = all(type(hello[name]) is kind for name, kind in expected.items())
        except (OSError, EOFError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
            return None
        return hello if known and right else None

    def _admit(self, hello: dict[str, Any], writer: asyncio.StreamWriter) -> Member | None:
        rank, world = hello["rank"], hello["world"]
        other = self.members.get(rank)
        if world != self.world:
            why = f"rank {rank} ({hello['host']}, pid {hello['pid']}) was started for {world} ranks, rank 0 for "
            why += f"{self.world}: give all ranks the same WORLD_SIZE"
            writer.write(pack({"kind": "refused", "why": why}))
            if not self.complete:
                self._blame(rank, why)
            return None
        if other is not None:
            why = f"rank {rank} of {world} is there already ({other.where}): give each process a RANK of its own"
            writer.write(pack({"kind": "refused", "why": why}))
            return None
        member = self.members[rank] = Member(hello, writer)
        if self.verdict is not None:
            self._send(member, self.verdict)
        elif len(self.members) == self.world:
            self.complete = True
            self._broadcast({"kind": "welcome"})
        return member

    def _handle(self, member: Member, message: dict[str, Any], payload: bytes) -> None:
        kind = message["kind"]
        if kind == "beat":
            member.doing, member.idle = message["doing"], message["idle"]
            member.waits, member.waited = message["waits"], message["waited"]
        elif kind == "meet":
            self._meet(member, message, payload)
        elif kind == "outline":
            self.ledger.outline(message["digest"], payload)
        elif kind == "turns":
            for ranks, at, program in message["turns"]:
                if why := self.ledger.report(member.rank, tuple(ranks), at, program):
                    self._blame(member.rank, why, wrong=True)
        elif kind == "suspect":
            self._suspect(member)
        elif kind == "failed":
            member.gone = "failed"
            self._blame(member.rank, f"rank {member.rank} ({member.where}) failed: {message['why']}")
        elif kind == "leave":
            member.gone = "its program has ended"
            for meeting in list(self.meetings.values()):
                self._blame_absent(meeting)
            if all(other.gone for other in self.members.values()):
                self._broadcast({"kind": "bye"})

    def _meet(self, member: Member, message: dict[str, Any], payload: bytes) -> None:
        key = (message["tag"], tuple(message["ranks"]))
        meeting = self.meetings.setdefault(key, Meeting(message["tag"], message["ranks"]))
        meeting.payloads[member.rank] = payload
        meeting.requests[member.rank] = message["id"]
        member.joined = message["tag"]
        if len(meeting.payloads) == len(meeting.ranks):
            del self.meetings[key]
            payloads = [meeting.payloads[rank] for rank in meeting.ranks]
            met = {"kind": "met", "sizes": [len(payload) for payload in payloads]}
            for rank in meeting.ranks:
                self._send(self.members[rank], met | {"id": meeting.requests[rank]}, b"".join(payloads))
        else:
            self._blame_absent(meeting)

    def _blame_absent(self, meeting: Meeting) -> None:
        """Blame a rank that has ended and will not come to the meeting."""
        for rank in meeting.ranks:
            member = self.members[rank]
            if member.gone and rank not in meeting.payloads:
                waiting = _ranks(sorted(meeting.payloads))
                where = f"'{meeting.tag}', where {waiting} waited"
                self._blame(rank, f"rank {rank} never comes to {where}: {member.gone}{member.last()}")
                return

    def _suspect(self, member: Member) -> None:
        """A collective failed at ``member``: blame a rank that has ended, if there is one."""
        for other in self.members.values():
            if other.gone and other is not member:
                self._blame(
                    other.rank,
                    f"rank {other.rank} ({other.where}) has ended while rank {member.rank} was in a collective "
                    f"with it: {other.gone}{other.last()}",
                )
                return

    # -- verdict ----------------------------------------------------------------------------------

    async def judge(self) -> None:
        """Once a second, send a pulse to all ranks and look for one that keeps others waiting."""
        printed = 0.0
        while True:
            await asyncio.sleep(PULSE_S)
            self._broadcast({"kind": "pulse"})
            if self.verdict is not None:
                continue
            if not self.complete:
                waited = time.monotonic() - self.began
                missing = [rank for rank in range(self.world) if rank not in self.members]
                if waited > self.join_timeout:
                    self._blame(missing[0], f"{_ranks(missing)} of {self.world} did not join within "
                                f"{self.join_timeout:.0f} s: start all {self.world} ranks (WORLD_SIZE) with the same "
                                "MASTER_ADDR and MASTER_PORT, or give them longer: XLAPROF_JOIN_TIMEOUT")  # fmt: skip
                elif waited - printed > 30:
                    printed = waited
                    print(f"xlaprof: waiting for {_ranks(missing)} of {self.world}", file=sys.stderr, flush=True)
            elif self.patience:
                self._blame_stuck()

    def _blame_stuck(self) -> None:
        now, there = time.monotonic(), [member for member in self.members.values() if not member.gone]
        waiting = [member for member in there if member.waits and member.waited >= self.patience]
        if not waiting:
            return
        first = max(waiting, key=lambda member: member.waited)
        whose = f"while rank {first.rank} waits at {first.waits}"
        for member in there:
            silent = now - member.heard
            if silent >= max(self.patience, SILENT_S):
                self._blame(member.rank, f"rank {member.rank} ({member.where}) has not answered for {silent:.0f} s "
                            f"(stopped, or held in one C call) {whose}{member.last()}")  # fmt: skip
                return
            if not member.waits and member.idle >= self.patience:
                self._blame(member.rank, f"rank {member.rank} ({member.where}) is stuck: nothing moved there for "
                            f"{member.idle:.0f} s {whose}{member.last()}")  # fmt: skip
                return
        if len(waiting) == len(there):
            places = "; ".join(f"rank {member.rank} at {member.waits}" for member in there)
            since = min(member.waited for member in there)
            self._blame(first.rank, f"all ranks wait for each other since {since:.0f} s: {places}")

    def _blame(self, rank: int, why: str, *, wrong: bool = False) -> None:
        """Send the verdict, once. ``wrong``: the results of ranks that have ended are wrong too."""
        if self.verdict is None:
            self.verdict = {"kind": "verdict", "rank": rank, "why": why, "wrong": wrong}
            self._broadcast(self.verdict)

    def _broadcast(self, message: dict[str, Any]) -> None:
        for member in self.members.values():
            self._send(member, message)

    def _send(self, member: Member, message: dict[str, Any], payload: bytes = b"") -> None:
        if not member.writer.is_closing():
            member.writer.write(pack(message, payload))


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else "ranks " + ", ".join(map(str, ranks))


async def _receive(
    reader: asyncio.StreamReader, most: int = MESSAGE, payload: int | None = None
) -> tuple[dict[str, Any], bytes]:
    """A message of at most ``most`` bytes and its payload, of at most ``payload``. ``ValueError``: a larger one."""
    head, body = FRAME.unpack(await reader.readexactly(FRAME.size))
    if head > most or (payload is not None and body > payload):
        raise ValueError(f"a message of {head} and {body} bytes")
    message = json.loads(await reader.readexactly(head))
    return message, await reader.readexactly(body) if body else b""


def _jax_service(address: str, world: int) -> tuple[Any, int]:
    """jax's coordination service, and its port. Its own heartbeats are off: the coordinator watches the ranks."""
    from jaxlib import _jax

    for attempt in range(8):
        with socket.socket() as probe:
            probe.bind((address, 0))
            port = probe.getsockname()[1]
        try:
            return _jax.get_distributed_runtime_service(
                f"{address}:{port}", world, heartbeat_timeout=7 * 86400, shutdown_timeout=5
            ), port
        except Exception:  # another process took the port in between
            if attempt == 7:
                raise
    raise AssertionError


async def _parent_ended() -> None:
    """Returns when rank 0, which holds the other end of our standard input, is gone."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


async def _run(address: str, world: int, token: str, patience: float, join_timeout: float) -> None:
    coordinator = Coordinator(world, token, patience, join_timeout)
    server = await asyncio.start_server(coordinator.serve, address, 0)
    service, jax_port = _jax_service(address, world)
    print(server.sockets[0].getsockname()[1], jax_port, flush=True)
    tasks = [asyncio.ensure_future(coordinator.judge()), asyncio.ensure_future(_parent_ended())]
    orphaned = 0.0
    quiet = 0.0
    while True:
        await asyncio.sleep(PULSE_S / 4)
        now = time.monotonic()
        if tasks[1].done():
            orphaned = orphaned or now
        if coordinator.connections:
            quiet = 0.0
        elif orphaned or coordinator.members:
            quiet = quiet or now
        if (quiet and now - quiet > LINGER_S) or (orphaned and now - orphaned > ORPHAN_S):
            break
    tasks[0].cancel()
    del service
    os._exit(0)  # nothing to clean up, and jax's service would wait for clients that are gone


if __name__ == "__main__":
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != os.path.dirname(os.path.abspath(__file__))]
    asyncio.run(_run(sys.argv[1], int(sys.argv[2]), sys.stdin.readline().strip(), *map(float, sys.argv[3:5])))
