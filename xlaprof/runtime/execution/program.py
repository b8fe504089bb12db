"""Compiled programs, and the bounded cache of them."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from concurrent.futures import Future, wait
from typing import Any, NamedTuple

from xlaprof.recording.trace import Trace
from xlaprof.runtime import parity
from xlaprof.runtime.tape.graph import Graph

from . import value_checks
from .constants import Given

#: limit of programs; past it the least recently used is evicted, and that is recorded. XLA maps memory for each
#: program, and the system limits the number of maps per process.
CACHE_SIZE = int(os.environ.get("XLAPROF_COMPILE_CACHE_SIZE", "1024"))


class Program:
    """A compiled graph."""

    __slots__ = ("compiled", "donated", "hash", "key", "needs", "number", "scalars", "tests", "uploaded")

    def __init__(
        self, number: int, key: Any, graph: Graph, compiled: Any, donated: tuple[int, ...], tests: Any
    ) -> None:
        self.number = number
        self.key = key
        self.hash = graph.hash
        self.compiled = compiled
        self.donated = donated
        self.needs = _memory(compiled)  # bytes it allocates when it runs
        self.tests: list[value_checks.Test] = tests  # debug checks, whose rows are its last output
        # The packed scalars of the last run, and their arrays on the device: unchanged ones are not sent again.
        self.scalars: Any = None
        self.uploaded: tuple[Any, Any, Any] | None = None


def _memory(compiled: Any) -> int:
    memory = compiled.memory_analysis()
    if memory is None:  # not known on this platform
        return 0
    own = memory.output_size_in_bytes - memory.alias_size_in_bytes + memory.temp_size_in_bytes
    return int(max(own, 0))


class Plan(NamedTuple):
    """The graph of one set of live outputs at one node, and the key of its program."""

    key: Any  # of the program in the cache
    graph: Graph
    given: tuple[Given, ...] = ()  # the constants that it takes as inputs


class Needs(NamedTuple):
    """Bytes of the device's memory that a program needs while it runs, as XLA says."""

    arguments: int
    results: int
    temporary: int
    donated: int  # results in the place of arguments


class Timing(NamedTuple):
    """How a program was come by."""

    lower: int  # ns of lowering to StableHLO
    backend: int  # ns of XLA, or of loading what was found on disk
    from_disk: bool
    spared: int = 0  # ns that making it once took, where it was found on disk and that is known
    kept: bool = False  # the next run finds it on disk
    unkept: str = ""  # why it does not
    needs: Needs | None = None  # None: not asked for
    lowered: Any = None  # what jax lowered; None where it was found before that


class Cache:
    """Programs by (device, graph hash, donated inputs), least recently used first."""

    def __init__(self, limit: int = CACHE_SIZE) -> None:
        self.limit = limit
        self._programs: OrderedDict[Any, Program] = OrderedDict()
        self._lock = threading.Lock()
        self._built = 0
        #: by key: programs that another thread compiles
        self.promised: dict[Any, Future[Any]] = {}
        #: hashes of graphs whose programs were evicted
        self.forgotten: OrderedDict[str, None] = OrderedDict()

    def get(self, key: Any) -> Program | None:
        """The program, made the most recently used."""
        with self._lock:
            program = self._programs.get(key)
            if program is not None:
                self._programs.move_to_end(key)
            return program

    def awaited(self, key: Any) -> Program | None:
        """The program that another thread compiles, once it is there. ``None``: none does, or it failed; whoever needs
        it compiles it, and is told why that fails."""
        promise = self.promised.get(key)
        if promise is not None:
            with Trace("waiting for a program that is compiled ahead"):
                wait((promise,))
        return self.get(key)

    def peek(self, key: Any) -> Program | None:
        """The program, without a change of its place in the order."""
        return self._programs.get(key)

    def number(self) -> int:
        """The next program's number, from 1."""
        with self._lock:
            self._built += 1
            return self._built

    def put(self, program: Program) -> list[Program]:
        """Keep ``program``; return the evicted ones."""
        evicted = []
        with self._lock:
            self._programs[program.key] = program
            while len(self._programs) > self.limit:
                _, old = self._programs.popitem(last=False)
                evicted.append(old)
                self.forgotten[old.hash] = None
                if len(self.forgotten) > 16 * self.limit:
                    self.forgotten.popitem(last=False)
        return evicted

    def clear(self) -> None:
        """Forget all programs."""
        with self._lock:
            self._programs.clear()

    def __len__(self) -> int:
        return len(self._programs)


cache = Cache()
parity.on_change.append(cache.clear)  # programs read numbers in another form
