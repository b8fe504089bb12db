"""What TORCH_TRACE wrote, a file or the folder with it, on another machine, say: TorchTPU's batches in it.

A record is a head line with its metadata as JSON, and lines of its payload, each behind a tab. What ``torch.compile``
wrote into the file is counted and left out: only a recording has the program's own lines and values for that.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import msgspec

from xlaprof import events
from xlaprof.bounds import cut
from xlaprof.log import LogError, opening
from xlaprof.text.quantities import plural

from .batches import MARK, Batches

if TYPE_CHECKING:
    from xlaprof.recording.stacks import RawFrame

_HEAD = re.compile(rb"^[A-Z]\d{4} \d\d:\d\d:\d\d\.\d+ (\d{1,9}) [^\]\n]*\] (\{.*)", re.MULTILINE)
_LONGEST = 16 << 20  # bytes of a line, and of a payload; what is longer is cut
_IDS = 65_536  # texts, and places; further ones have none
_MARK = MARK.encode()
_BEFORE_NS = 3_600 * 10**9  # the log's clock shows at the first batch: others that began before are written later
_UNDATED = "their moments are not known, and they are put at that of the batch before"


class TraceFile:
    name = "TORCH_TRACE"
    looks_for = "a log of PyTorch's structured trace, dedicated_log_torch_trace_*.log, or a folder with one"

    def recognises(self, path: str, head: bytes) -> bool:
        return bool(_within(path)) if os.path.isdir(path) else _HEAD.match(head) is not None

    def open(self, path: str) -> TraceReader:
        if not os.path.isdir(path):
            return TraceReader(path)
        found = _within(path)
        if len(found) != 1:
            one = min(found, default=path)
            raise LogError(f"{path} has {plural(len(found), 'log')} of TORCH_TRACE: name one of them, as {one}")
        return TraceReader(found[0])

    def follow(self, path: str) -> None:
        return None


def _within(folder: str) -> list[str]:
    """The logs of TORCH_TRACE in a folder, where no others are."""
    logs = sorted(glob.glob(os.path.join(glob.escape(folder), "*.log")))
    return logs if all(os.path.basename(log).startswith("dedicated_log_torch_trace_") for log in logs) else []


class _Record(NamedTuple):
    metadata: dict[str, Any] | None  # None: it was no JSON object
    payload: str
    pid: int


class TraceReader:
    """The events of one such file; ``notes`` is complete when they have ended."""

    def __init__(self, path: str) -> None:
        with opening(path):
            self._file: BinaryIO = open(path, "rb")  # noqa: SIM115 - closed by close()
        self._others = self._damaged = self._undated = 0
        self._why = ""

    @property
    def notes(self) -> tuple[str, ...]:
        found = []
        if self._damaged:
            found.append(f"{plural(self._damaged, 'record')} could not be understood, the first: {self._why}")
        if self._undated:
            found.append(f"{self._undated:,} of the batches are not dated: {_UNDATED}")
        if self._others:
            found.append(
                f"{plural(self._others, 'record')} of torch.compile left out: xlaprof run has it explained, "
                "with the program's own lines"
            )
        return tuple(found)

    def close(self) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[events.AnyEvent]:
        with self._file:
            yield from self._events()

    def _events(self) -> Iterator[events.AnyEvent]:
        from .emit import Emitter

        batches, ids, pid = Batches(), _Ids(), 0
        emitter = Emitter(ids.text, ids.place)
        last, begin = 0, -1  # ns of the unix clock
        end = _BEFORE_NS
        for record in self._records():
            pid = pid or record.pid
            try:
                found = batches.take(record.metadata, record.payload) if record.metadata is not None else ()
            except Exception as error:  # msgspec's, also RecursionError
                self._fail(f"{type(error).__name__}: {error}")
                continue
            for batch in found if record.metadata is not None else tuple(batches.end()):
                if begin < 0:
                    begin = batch.unix_ns
                    yield events.Header(events.SCHEMA, pid=pid, mono_ns=_BEFORE_NS, unix_ns=begin)
                    yield events.Source(_BEFORE_NS, "TorchTPU")
                self._undated += not batch.unix_ns
                last = batch.unix_ns or last
                event = emitter.event(batch, max(0, last - begin + _BEFORE_NS))
                yield from ids.new()
                yield event
                end = max(end, event.t + event.dur)
        if begin < 0:
            yield events.Header(events.SCHEMA, pid=pid, mono_ns=end, unix_ns=0)
        yield events.End(end)  # how the program ended such a file never says: nobody is to be told that it was killed

    def _fail(self, why: str) -> None:
        self._damaged += 1
        self._why = self._why or why[:200]

    def _records(self) -> Iterator[_Record]:
        """Those that may be TorchTPU's, and at the end one without metadata; a payload is kept for them alone."""
        head: tuple[dict[str, Any], int] | None = None
        payload: list[bytes] = []
        size = 0
        while line := self._line():
            if line.startswith(b"\t"):
                if head is not None and size < _LONGEST:
                    payload.append(line[1:].rstrip(b"\n"))
                    size += len(line)
                continue
            if head is not None:
                yield _Record(head[0], b"\n".join(payload).decode("utf-8", "replace"), head[1])
            head, size = None, 0
            payload.clear()
            found = _HEAD.match(line)
            if found is None:
                if line.strip():
                    self._fail(f"a line that begins with {line[:40]!r}")
            elif _MARK in line or b"chromium_event" in line:
                head = self._metadata(found[2]), int(found[1])
                head = head if head[0] else None
            else:
                self._others += 1
        if head is not None:
            yield _Record(head[0], b"\n".join(payload).decode("utf-8", "replace"), head[1])
        yield _Record(None, "", 0)

    def _metadata(self, text: bytes) -> dict[str, Any]:
        try:
            said = msgspec.json.decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self._fail(f"{type(error).__name__}: {error}")
            return {}
        return said if isinstance(said, dict) else {}

    def _line(self) -> bytes:
        """The next line; of one that is too long, its begin."""
        line = more = self._file.readline(_LONGEST)
        while more and not more.endswith(b"\n"):
            more = self._file.readline(_LONGEST)
        return line


class _Ids:
    """Texts and places by number, and the events that define them. Of a place the file has no more than its name."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {"": 0}
        self._places: dict[RawFrame, int] = {}
        self._new: list[events.AnyEvent] = []

    def text(self, text: str) -> int:
        text = cut(text)
        if text not in self._texts and len(self._texts) < _IDS:
            self._texts[text] = len(self._texts)
            self._new.append(events.Text(self._texts[text], text))
        return self._texts.get(text, 0)

    def place(self, frame: RawFrame) -> int:
        if frame not in self._places and len(self._places) < _IDS:
            self._places[frame] = len(self._places) + 1
            made = events.Frame(self.text(frame.file), frame.line, self.text(frame.func))
            self._new.append(events.Stack(self._places[frame], [made]))
        return self._places.get(frame, 0)

    def new(self) -> Iterator[events.AnyEvent]:
        """What was defined since the last call."""
        yield from self._new
        self._new.clear()
