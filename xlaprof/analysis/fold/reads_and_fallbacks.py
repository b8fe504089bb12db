"""Reads, uploads and fallbacks: part of the totals of a recording."""

from __future__ import annotations

from collections import deque

import msgspec

from xlaprof.analysis.principles import STOPS_NS
from xlaprof.analysis.sums import RECORDS, add_bounded, tally_of
from xlaprof.analysis.timeline import host
from xlaprof.events import Execute, Fallback, Selected, StepDigest, TransferFromDevice, TransferToDevice

from .recording import Recording
from .tallies import FallbackTally, ReadTally, Timed, UploadTally

PLACES = 16_384  # places kept apart; all further ones count as one unknown place
AT_HAND = 16  # uploads that may still turn out to belong to a fallback


class Read(msgspec.Struct):
    """A read that may still turn out to belong to a step or to a fallback."""

    tally: ReadTally | None
    event: TransferFromDevice
    end: int
    compiled: int = 0
    stalled: int = 0


class ReadsAndFallbacks(Recording):
    """Reads, uploads and fallbacks so far, by place and operation."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: dict[tuple[int, int], ReadTally] = {}
        self.fallbacks: dict[tuple[int, int], FallbackTally] = {}
        self.read, self.uploads = Timed(), Timed()
        self.sent: dict[tuple[int, bool], UploadTally] = {}  # by stack, and whether the same data came again
        self.came_again: dict[tuple[int, int], int] = {}  # (stack, Text id: the data) -> bytes
        self.vias: dict[tuple[int, int], int] = {}  # (stack, op) of reads -> the library's function that read
        self.read_runs: dict[int, int] = {}  # stack of reads -> ns of device work only for them
        #: (stack, op) of writes by a mask whose size was read -> graphs
        self.selections: dict[tuple[int, int], int] = {}
        self.given: dict[int, int] = {}  # stack of all other executions -> their number
        self.compiled_for_read = 0  # ns compiled for a read since the last read
        self.busy_until = 0  # when the device would finish its work if it never had to wait for it
        self.last_execution_end = 0
        self.last_transfer = (0, 0)  # when and at which stack the main thread last ended a transfer or fallback
        self.reads_since_step: deque[Read] = deque(maxlen=RECORDS)
        self.reads_since_barrier: deque[Read] = deque(maxlen=RECORDS)
        self.reads_since_execution: deque[Read] = deque(maxlen=RECORDS)
        self.fallbacks_since_step: deque[tuple[FallbackTally, int]] = deque(maxlen=RECORDS)
        self.recent_uploads: deque[TransferToDevice] = deque(maxlen=AT_HAND)

    def _on_read(self, event: TransferFromDevice) -> None:
        start, dur, wait, stack = event.t, event.dur, event.wait, event.stack
        end = start + dur
        self.read.add(1, dur)
        self._paint((start, end, host.TRANSFER, stack))
        self._add_wait((start, end, wait))
        key = (stack, event.op)
        tally = self.reads.get(key)
        if tally is None:
            tally = self._reads_at(key)
        read = Read(tally, event, end)
        # the second condition: where the device works while the host hands over, as with small programs on the CPU,
        # the host waited then
        if not event.late and (wait > STOPS_NS or start < self.busy_until):
            read.stalled = 1
        tally.add(1, dur, dur, wait, event.bytes, int(event.late), read.stalled)
        tally.rhythm.at(self.steps_ended)
        if self.compiled_for_read:
            read.compiled, self.compiled_for_read = self.compiled_for_read, 0
            tally.compiled += read.compiled
        if event.via and len(self.vias) < PLACES:
            self.vias[key] = event.via
        self.reads_since_step.append(read)
        self.reads_since_barrier.append(read)
        self.reads_since_execution.append(read)
        if event.tid == self.main_thread:
            self.last_transfer = (end, stack)
        if end > self.last:
            self.last = end

    def _on_upload(self, event: TransferToDevice) -> None:
        start, dur = event.t, event.dur
        self.recent_uploads.append(event)
        uploads = self.uploads  # without a call: they are many
        uploads.count += 1
        uploads.ns += dur
        if event.tid == self.main_thread:
            self._paint((start, start + dur, host.UPLOAD, event.stack))
            tally = tally_of(self.sent, (event.stack, event.again), PLACES, (0, False), UploadTally)
            tally.add(event.calls, tally.beyond(start, start + dur), event.bytes)
            tally.rhythm.at(self.steps_ended, event.calls)
            if event.what:
                add_bounded(self.came_again, (event.stack, event.what), event.bytes, PLACES)

    def largest_again(self, stack: int) -> int:
        """Text id: what most of the data is that comes again at a line; 0: it is not known."""
        mine = {what: size for (at, what), size in self.came_again.items() if at == stack}
        return max(mine, key=lambda what: (mine[what], what), default=0)

    def _on_selected(self, event: Selected) -> None:
        add_bounded(self.selections, (event.stack, event.op), 1, RECORDS)

    def _on_fallback(self, event: Fallback) -> None:
        start = event.t
        end = start + event.dur
        key = (event.stack, event.op)
        tally = self._fallbacks_at(key)
        tally.add(1, event.dur, event.dur, self.steps_ended)
        # its transfers belong to it
        for sent in self.recent_uploads:
            if sent.t >= start and sent.tid == event.tid:
                tally.up += sent.dur
                tally.up_bytes += sent.bytes
        self.recent_uploads.clear()
        for read in reversed(self.reads_since_step):
            cause = read.event
            if cause.t < start:
                break
            if read.tally is not None and cause.tid == event.tid and read.end <= end:
                read.tally.add(-1, -cause.dur, 0, -cause.wait, -cause.bytes, -int(cause.late), -read.stalled)
                read.tally.compiled -= read.compiled
                read.tally = None
                tally.reads += 1
                tally.bytes += cause.bytes
                tally.compiled += read.compiled
                tally.wait += cause.wait
                tally.down += max(0, cause.dur - cause.wait - read.compiled)
        self.window.host.repaint(start, host.TRANSFER, host.FALLBACK)
        self._paint((start, end, host.FALLBACK, event.stack))
        self.fallbacks_since_step.append((tally, start))
        if event.tid == self.main_thread:
            self.last_transfer = (end, event.stack)
        self.cover(start, end)

    def claim_for_loop(self) -> None:
        if self.reads_since_barrier:
            if self.last_barrier:
                for read in self.reads_since_barrier:
                    if read.tally is not None:
                        read.tally.looped += 1
            self.reads_since_barrier.clear()

    def _reads_at(self, place: tuple[int, int]) -> ReadTally:
        return tally_of(self.reads, place, PLACES, (0, 0), ReadTally)

    def _fallbacks_at(self, place: tuple[int, int]) -> FallbackTally:
        return tally_of(self.fallbacks, place, PLACES, (0, 0), FallbackTally)

    def _add_execution(self, event: Execute) -> None:
        """The device ran a program: whether the reads before left it idle is known now."""
        start, end = event.start, event.end
        given = event.t + event.enqueue + end - start
        if given > self.busy_until:
            self.busy_until = given
        if event.trigger == "read" and (event.stack in self.read_runs or len(self.read_runs) < PLACES):
            self.read_runs[event.stack] = self.read_runs.get(event.stack, 0) + end - start
        else:
            add_bounded(self.given, event.stack, 1, PLACES)
        waiting = self.reads_since_execution
        while waiting and waiting[0].end < end:
            read = waiting.popleft()
            if read.tally is not None:
                idle = start - max(read.end, self.last_execution_end)
                if idle > 0:
                    read.tally.serial += min(idle, read.event.wait)
        if end > self.last_execution_end:
            self.last_execution_end = end

    def claim_for_step(self, start: int, name: int, number: int) -> None:
        """A step that began at ``start`` has ended: reads and fallbacks since then belong to it."""
        if self.reads_since_step:
            key = (name, number)
            for read in self.reads_since_step:
                reads = read.tally
                if reads is not None and read.event.t >= start:
                    reads.claim(1, int(reads.last_step != key), key)
            self.reads_since_step.clear()
        if self.fallbacks_since_step:
            for fallen, moment in self.fallbacks_since_step:
                if moment >= start:
                    fallen.in_steps += 1
            self.fallbacks_since_step.clear()

    def _add_digest(self, event: StepDigest) -> tuple[int, int]:
        """Reads and fallbacks of a digest; ns of each."""
        reads = fallbacks = 0
        for key, triple in event.reads.items():
            count, total, most = triple
            self.read.add(count, total)
            if key in event.fallbacks:  # its transfers, and their time, belong to it
                self._fallbacks_at(pair(key)).reads += count
                continue
            read = self._reads_at(pair(key))
            read.add_digests(count, total, most, 1)
            read.rhythm.at(self.steps_ended, count)
            reads += total
        for key, triple in event.fallbacks.items():
            count, total, most = triple
            fallen = self._fallbacks_at(pair(key))
            fallen.add(count, total, most, self.steps_ended)
            fallen.in_steps += count
            fallbacks += total
        return reads, fallbacks


def pair(key: str) -> tuple[int, int]:
    """The ids in a digest's key "stack:op"; 0 where there is none."""
    stack, _, op = key.partition(":")
    return _id(stack), _id(op)


def _id(digits: str) -> int:
    return int(digits) if digits.isdecimal() and len(digits) < 10 else 0
