"""Programs of eager mode: they take only the packed scalars that they use, and return only values.

Every argument and every result of a call costs about a microsecond.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from xlaprof.runtime.execution.build import Broken, compile_options
from xlaprof.runtime.execution.kept import persistent
from xlaprof.runtime.execution.program import Plan, Program, Timing
from xlaprof.runtime.lowering.registry import JAX_DTYPE
from xlaprof.runtime.trace.evaluate import Evaluator
from xlaprof.runtime.trace.trie import Node


def build(number: int, plan: Plan, device: jax.Device) -> tuple[Program, Timing]:
    """Compile the graph of ``plan`` for ``device``: a program of ``([f64[n]], [s64[n]], [u32[n, 2]], *inputs)``.

    Raises ``build.Broken`` where an operation cannot be lowered, or whatever XLA raises.
    """
    graph = plan.graph
    packs = [
        jax.ShapeDtypeStruct((len(graph.floats),), jnp.float64),
        jax.ShapeDtypeStruct((len(graph.ints),), jnp.int64),
        jax.ShapeDtypeStruct((len(graph.seeds), 2), jnp.uint32),
    ]
    given = [i for i, pack in enumerate(packs) if pack.shape[0]]

    def trace(*arguments: Any) -> list[Any]:
        packed = dict(zip(given, arguments, strict=False))
        values = dict(zip(graph.inputs, arguments[len(given) :], strict=True))
        evaluator = Evaluator(values, packed.get(0), packed.get(1), packed.get(2), graph.numbering)

        def call(node: Node, seed: int) -> tuple[jax.Array, ...]:
            try:
                return evaluator.call(node, seed)
            except Exception as error:
                raise Broken(node) from error

        evaluator.evaluate(graph.nodes, call)
        return [values[slot] for slot in graph.outs]

    trace.__name__ = trace.__qualname__ = f"eager_{graph.nodes[-1].op}".replace("aten.", "").replace(".", "_")
    sharding = jax.sharding.SingleDeviceSharding(device)
    avals = [jax.ShapeDtypeStruct(packs[i].shape, packs[i].dtype, sharding=sharding) for i in given]
    avals += [jax.ShapeDtypeStruct(s.shape, JAX_DTYPE[s.dtype], sharding=sharding) for s in graph.sigs]
    with jax.enable_x64(True):
        jitted = jax.jit(trace, keep_unused=True)
        compiled, timing = persistent.compiled(
            graph, "eager", device, (), compile_options(), lambda: jitted.lower(*avals)
        )
    return Program(number, plan.key, graph, compiled, (), []), timing
