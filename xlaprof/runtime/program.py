"""Compiled programs: a graph lowered through jax and compiled by XLA, and the bounded cache of them."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from time import perf_counter_ns
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .graph import Graph
from .lowering.apply import Evaluator
from .lowering.registry import JAX_DTYPE

#: programs kept at most; the least recently used is forgotten, and that is reported. XLA maps memory for each, and
#: the system bounds the number of maps of a process.
CACHE_SIZE = int(os.environ.get("XLAPROF_COMPILE_CACHE_SIZE", "1024"))


class Program:
    """A compiled graph."""

    __slots__ = ("compiled", "donated", "hash", "key", "number", "ops", "scalars", "uploaded")

    def __init__(self, number: int, key: Any, graph: Graph, compiled: Any, donated: tuple[int, ...]) -> None:
        self.number = number
        self.key = key
        self.hash = graph.hash
        self.ops = len(graph.nodes)
        self.compiled = compiled
        self.donated = donated
        # The packed scalars last handed over, and their arrays on the device: what has not changed is not sent again.
        self.scalars: Any = None
        self.uploaded: tuple[Any, Any, Any] | None = None


class Plan(NamedTuple):
    """How to run a program from a walk that ends at one node with one set of live outputs."""

    key: Any  # of the program in the cache
    graph: Graph


class Timing(NamedTuple):
    """ns of a compilation: our lowering to StableHLO, and XLA's."""

    lower: int
    backend: int


def build(number: int, key: Any, graph: Graph, device: jax.Device, donated: tuple[int, ...]) -> tuple[Program, Timing]:
    """Compile ``graph`` for ``device``; the inputs numbered in ``donated`` are given up to it.

    Raises whatever jax or XLA raises.
    """
    start = perf_counter_ns()
    outs_at = graph.outs

    def trace(floats: Any, ints: Any, seeds: Any, *inputs: Any) -> Any:
        values = dict(zip(graph.inputs, inputs, strict=True))
        scalars = {p: i for i, p in enumerate(graph.floats)} | {p: i for i, p in enumerate(graph.ints)}
        evaluator = Evaluator(values, floats, ints, seeds, scalars)
        seed = 0
        for node in graph.nodes:
            assert node.op is not None
            with jax.named_scope(_scope(node)):
                avals = tuple(out and out.aval for out in node.returns)
                results = evaluator.run(node.op, node.args, node.kwargs, avals, seed)
            seed += int(node.op.random)
            for out, value in zip(node.outs, results, strict=True):
                values[out.slot] = value
        # The last output is for whoever waits for the end: holding it keeps no buffer of the program's alive.
        return [*[values[slot] for slot in outs_at], jnp.zeros((), jnp.bool_)]

    trace.__name__ = trace.__qualname__ = f"graph_{number}"
    sharding = jax.sharding.SingleDeviceSharding(device)
    avals = [
        jax.ShapeDtypeStruct((len(graph.floats),), jnp.float64, sharding=sharding),
        jax.ShapeDtypeStruct((len(graph.ints),), jnp.int64, sharding=sharding),
        jax.ShapeDtypeStruct((len(graph.seeds), 2), jnp.uint32, sharding=sharding),
        *(jax.ShapeDtypeStruct(s.shape, JAX_DTYPE[s.dtype], sharding=sharding) for s in graph.sigs),
    ]
    with jax.enable_x64(True):
        jitted = jax.jit(trace, donate_argnums=tuple(3 + i for i in donated), keep_unused=True)
        lowered = jitted.lower(*avals)
        lowered_at = perf_counter_ns()
        compiled = lowered.compile()
    end = perf_counter_ns()
    return Program(number, key, graph, compiled, donated), Timing(lowered_at - start, end - lowered_at)


def _scope(node: Any) -> str:
    """``Decoder/Block/model.py:31``: what device profiles show for the operation."""
    place = f"{os.path.basename(node.frames[0].file)}:{node.frames[0].line}" if node.frames else "unknown"
    return f"{node.module}/{place}" if node.module else place


class Cache:
    """Programs by (device, graph hash, donated inputs), least recently used first."""

    def __init__(self, limit: int = CACHE_SIZE) -> None:
        self.limit = limit
        self._programs: OrderedDict[Any, Program] = OrderedDict()
        self._lock = threading.Lock()
        self._built = 0
        #: hashes of graphs that were compiled and forgotten
        self.forgotten: OrderedDict[str, None] = OrderedDict()

    def get(self, key: Any) -> Program | None:
        """The program, made the most recently used."""
        with self._lock:
            program = self._programs.get(key)
            if program is not None:
                self._programs.move_to_end(key)
            return program

    def number(self) -> int:
        """The next program's number, from 1."""
        with self._lock:
            self._built += 1
            return self._built

    def put(self, program: Program) -> list[Program]:
        """Keep ``program``; return those that had to go."""
        gone = []
        with self._lock:
            self._programs[program.key] = program
            while len(self._programs) > self.limit:
                _, old = self._programs.popitem(last=False)
                gone.append(old)
                self.forgotten[old.hash] = None
                if len(self.forgotten) > 16 * self.limit:
                    self.forgotten.popitem(last=False)
        return gone

    def clear(self) -> None:
        """Forget all programs."""
        with self._lock:
            self._programs.clear()

    def __len__(self) -> int:
        return len(self._programs)


cache = Cache()
