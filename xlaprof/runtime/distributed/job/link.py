"""A rank's end of its connection to the :mod:`.coordinator`: a thread that reports and listens, and meetings.

The thread reports once a second: the user's line, the time without progress, and where the rank waits for others. A
rank makes progress, or *moves*, while it uses the processor or its lines change: it compiles, computes or loads. It
*waits* in a meeting, or where the runtime waits for the device, which then waits in a collective.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from xlaprof.recording import stacks

from .coordinator import FRAME, PULSE_S, keep_alive, pack

#: share of a processor's time from which on a rank moves
MOVES = 0.01
_HERE = os.path.dirname(os.path.abspath(__file__))
_DEVICE = (os.path.join(stacks.OWN, "runtime", ""), os.path.dirname(jax.__file__) + os.sep)
_STARTS_PROGRAMS = os.path.join(_HERE, "launch.py")


class Refused(RuntimeError):
    """The coordinator does not let this rank in; the message says why."""


class Link:
    """The connection. ``on_verdict(rank, why)`` is called, in the link's thread, when the world has failed."""

    def __init__(
        self, address: tuple[str, int], hello: dict[str, Any], on_verdict: Callable[[int, str], None], where: str
    ) -> None:
        self.where = where  # the coordinator's address, for messages
        self.rank: int = hello["rank"]
        self._on_verdict = on_verdict
        self._sock = socket.create_connection(address, timeout=10)
        self._sock.settimeout(None)
        keep_alive(self._sock)
        self._sending = threading.Lock()
        self._news = threading.Condition()
        self._answers: dict[int, list[bytes]] = {}
        self._ids = itertools.count(1)
        self._welcome = self._bye = self._closed = False
        self._refused = ""
        self.verdict: tuple[int, str] | None = None
        self.wrong = False  # are results up to now wrong?
        #: by ranks: how many programs with collectives among them were launched, and the last one
        self.turns: dict[tuple[int, ...], tuple[int, str]] = {}
        self._waits: list[tuple[str, float]] = []
        self._moved = time.monotonic()
        self._cpu = 0.0
        self._seen: Any = None
        self.send(hello | {"kind": "hello"})
        self._thread = threading.Thread(target=self._run, name="xlaprof-link", daemon=True)
        self._thread.start()

    # -- used by the rank's other threads ---------------------------------------------------------

    def send(self, message: dict[str, Any], payload: bytes = b"") -> None:
        """Send one frame to the coordinator. The link's thread handles a lost connection."""
        with self._sending, contextlib.suppress(OSError):
            self._sock.sendall(pack(message, payload))

    def wait_for_welcome(self, timeout: float) -> None:
        """Return when all ranks have joined. Raises :class:`Refused` where this one is not let in."""
        with self._news:
            self._news.wait_for(lambda: self._welcome or self._refused or self.verdict, timeout)
        if self._refused:
            raise Refused(self._refused)

    def meet(self, tag: str, payload: bytes, ranks: Sequence[int]) -> list[bytes] | None:
        """The payloads of ``ranks`` (this one among them) in their order, once all have come to ``tag``.

        ``None`` where the world fails before: :attr:`verdict` has the reason.
        """
        number = next(self._ids)
        with self.waiting(f"'{tag}'"):
            self.send({"kind": "meet", "tag": tag, "ranks": list(ranks), "id": number}, payload)
            with self._news:
                self._news.wait_for(lambda: number in self._answers or self.verdict)
                return self._answers.pop(number, None)

    def report_switch(self, ranks: tuple[int, ...], at: int, program: str) -> None:
        """Report that the launch ``at`` of those among ``ranks`` is of another program than the one before."""
        self.send({"kind": "turns", "turns": [(ranks, at, program)]})

    def report_progress(self) -> None:
        """Report how far this rank is with its programs with collectives."""
        if self.turns:
            self.send({"kind": "turns", "turns": [(ranks, *turn) for ranks, turn in list(self.turns.items())]})

    @contextlib.contextmanager
    def waiting(self, place: str) -> Iterator[None]:
        """Context in which this rank waits at ``place`` for others, and so is not stuck."""
        entry = (place, time.monotonic())
        self._waits.append(entry)
        try:
            yield
        finally:
            self._waits.remove(entry)
            self._moved = time.monotonic()

    def blame(self, timeout: float) -> tuple[int, str] | None:
        """A collective failed: who is to blame, as far as the coordinator knows within ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while self.verdict is None and time.monotonic() < deadline:
            self.send({"kind": "suspect"})
            with self._news:
                self._news.wait_for(lambda: self.verdict, 0.2)
        return self.verdict

    def leave(self) -> None:
        """This rank's program has ended: return when all others' have, or have failed."""
        self.report_progress()
        self.send({"kind": "leave"})
        with self._news:
            self._news.wait_for(lambda: self._bye or self.verdict or self._closed)
            self._bye = True

    def close(self) -> None:
        """End the connection without a message."""
        with self._news:
            self._bye = True
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    # -- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        why = "its process ended"
        heard = bytearray()
        beat = 0.0
        try:
            while True:
                ready, _, _ = select.select([self._sock], [], [], PULSE_S / 2)
                if ready:
                    chunk = self._sock.recv(1 << 20)
                    if not chunk:
                        break
                    heard += chunk
                    self._take(heard)
                now = time.monotonic()
                if now - beat >= PULSE_S:
                    self._beat(now, now - beat)
                    beat = now
        except OSError as error:
            why = f"it cannot be reached ({error.strerror or error})"
        with self._news:
            self._closed = True
            lost = not self._bye and not self._refused
            self._news.notify_all()
        self._sock.close()
        if lost:
            self._fail(0, f"rank {self.rank} is cut off from the coordinator on rank 0's host ({self.where}): {why}")

    def _take(self, heard: bytearray) -> None:
        """Act on the frames that are complete."""
        while len(heard) >= FRAME.size:
            head, body = FRAME.unpack_from(heard)
            end = FRAME.size + head + body
            if len(heard) < end:
                return
            message = json.loads(bytes(heard[FRAME.size : FRAME.size + head]))
            payload = bytes(heard[FRAME.size + head : end])
            del heard[:end]
            kind = message["kind"]
            if kind == "verdict":
                self.wrong = message["wrong"]
                self._fail(message["rank"], message["why"])
                continue
            with self._news:
                if kind == "welcome":
                    self._welcome = True
                elif kind == "refused":
                    self._refused = message["why"]
                elif kind == "bye":
                    self._bye = True
                elif kind == "met":
                    at, parts = 0, []
                    for size in message["sizes"]:
                        parts.append(payload[at : at + size])
                        at += size
                    self._answers[message["id"]] = parts
                self._news.notify_all()

    def _fail(self, rank: int, why: str) -> None:
        with self._news:
            if self.verdict is not None:
                return
            self.verdict = (rank, why)
            over = self._bye
            self._news.notify_all()
        if not over:
            self._on_verdict(rank, why)

    def _beat(self, now: float, since: float) -> None:
        with stacks.looking:
            place, waits, waited, idle = self._look(now, since)
        self.send({"kind": "beat", "doing": place, "idle": idle, "waits": waits, "waited": waited})
        self.report_progress()

    def _look(self, now: float, since: float) -> tuple[str, str, float, float]:
        """The line this rank is at, where it waits and for how many s, and the s without progress.

        A held frame keeps its function's tensors alive, and live tensors decide the outputs of a graph. So all frames
        are released on return, while ``stacks.looking`` is held: a backward pass that needs its tensors freed waits.
        """
        main = threading.main_thread().ident or 0
        place = _place(main)
        lines = [(frame.f_code, frame.f_lineno) for frame in stacks.running(main)[:64]]
        cpu = time.process_time()
        if lines != self._seen or cpu - self._cpu > MOVES * since:
            self._moved = now
        self._seen, self._cpu = lines, cpu
        idle = now - self._moved
        waits, waited = "", 0.0
        if self._waits:
            waits, began = self._waits[-1]
            waited = now - began
        elif any(_in_runtime(ident) for ident in stacks.threads() if not _is_ours(ident)):
            waits, waited = "the device", idle
        if waits and place:
            waits = f"{waits} ({place})"
        return place, waits, waited, idle


def _place(ident: int) -> str:
    """The user's line that a thread is at: ``train.py:12``."""
    found = stacks.frames_of_thread(ident, 1)
    return f"{found[0].file}:{found[0].line}" if found else ""


def _in_runtime(ident: int) -> bool:
    """Is the user's code on a thread inside a call of the runtime or of jax?"""
    for frame in stacks.running(ident):
        file = frame.f_code.co_filename
        if file.startswith(_DEVICE):
            return file != _STARTS_PROGRAMS
        if not stacks.is_library(file, frame.f_globals.get("__name__")):
            return False
    return False


def _is_ours(ident: int) -> bool:
    thread = threading._active.get(ident)  # type: ignore[attr-defined]  # enumerate() takes a lock
    return thread is not None and thread.name.startswith("xlaprof")
