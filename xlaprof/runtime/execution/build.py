"""A graph becomes a program: lowered through jax to StableHLO, and compiled by XLA."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.profiler import TraceAnnotation

from xlaprof.runtime import parity
from xlaprof.runtime.lowering.registry import JAX_DTYPE
from xlaprof.runtime.tape.graph import Graph
from xlaprof.runtime.trace.evaluate import Evaluator
from xlaprof.text.strings import file_line

from . import value_checks
from .kept import persistent
from .program import Program, Timing

if TYPE_CHECKING:
    from xlaprof.runtime.trace.storage import Sig
    from xlaprof.runtime.trace.trie import Node


class Broken(Exception):
    """An operation could not be lowered while its graph was compiled: ``raise Broken(node) from error``."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.node = node


_options: dict[str, Any] = {}


def set_custom_compile_options(options: dict[str, Any]) -> None:
    """Set XLA options, by flag name without dashes, for all programs compiled from now on; ``{}`` removes them.

    As ``torch_xla.set_custom_compile_options``. An option XLA does not know is an error of the next compilation.
    """
    global _options
    _options = dict(options)


def compile_options() -> dict[str, Any]:
    """The options of :func:`set_custom_compile_options`."""
    return dict(_options)


def build(
    number: int,
    key: Any,
    graph: Graph,
    device: jax.Device,
    donated: tuple[int, ...],
    *,
    partition: Any = None,  # the tape's
    lowered: Callable[[], None] = lambda: None,
) -> tuple[Program, Timing]:
    """Compile ``graph`` for ``device``; the inputs numbered in ``donated`` are donated to it.

    ``lowered`` is called before XLA begins, where the graph has to be lowered.

    Raises :class:`Broken` if an operation cannot be lowered, or XLA's error.
    """
    outs_at = graph.outs
    checked = value_checks.enabled
    checks: list[value_checks.Test] = []

    def trace(floats: Any, ints: Any, seeds: Any, *inputs: Any) -> Any:
        values = dict(zip(graph.inputs, inputs, strict=True))
        make = partition.evaluator(graph) if partition else Evaluator
        evaluator = make(values, floats, ints, seeds, graph.numbering)
        rows: list[jax.Array] = []

        def call(node: Node, seed: int) -> tuple[jax.Array, ...]:
            with jax.named_scope(_scope(node)):
                try:
                    results: tuple[jax.Array, ...] = evaluator.call(node, seed)
                except Exception as error:
                    raise Broken(node) from error
            if checked:
                more, lines = value_checks.tests(node, *evaluator.read(node.args, node.kwargs))
                checks.extend(more)
                rows.extend(lines)
            return results

        evaluator.evaluate(graph.nodes, call)
        # The last output is for waiting: holding it keeps no buffer of the program alive.
        token = jnp.stack(rows) if rows else jnp.zeros((), jnp.bool_)
        return [*[values[slot] for slot in outs_at], token]

    # Not by number: jax's persistent cache includes the name, and numbers differ between runs.
    trace.__name__ = trace.__qualname__ = f"graph_{graph.hash[:12]}"
    sharding: Any = jax.sharding.SingleDeviceSharding(device)
    together = placement_of(graph, device)
    if together is not None:
        trace, sharding = together.on_all_ranks(trace), together.sharding
    outs = None
    if partition is not None:
        trace, sharding = partition.with_padding(trace, graph, key[4]), partition.everywhere
        outs = partition.out_shardings(key[4])
    avals = [
        _numbers(len(graph.floats), jnp.float64, sharding),
        _numbers(len(graph.ints), jnp.int64, sharding),
        jax.ShapeDtypeStruct((len(graph.seeds), 2), jnp.uint32, sharding=sharding),
        *(partition.avals(graph) if partition else [_input(s, sharding) for s in graph.sigs]),
    ]

    def lower() -> Any:
        made = jitted.lower(*avals)
        lowered()
        return made

    with jax.enable_x64(True):
        jitted = jax.jit(trace, donate_argnums=tuple(3 + i for i in donated), keep_unused=True, out_shardings=outs)
        with TraceAnnotation("PjRtComputationClient::Compile"):  # its name in PyTorch/XLA's profiles
            compiled, timing = persistent.compiled(
                graph,
                "graph",
                device,
                donated,
                _options,
                lower,
                _unkept(checked, together, partition),
            )
    if together is not None:
        compiled = together.bind(compiled)
    return Program(number, key, graph, compiled, donated, checks), timing


def _unkept(checked: bool, together: Any, partition: Any) -> str:
    """Why the program cannot be kept between runs."""
    if checked:
        return "it checks values"
    return "it runs on several devices" if together is not None or partition is not None else ""


def _input(sig: Sig, sharding: Any) -> Any:
    return jax.ShapeDtypeStruct(sig.shape, JAX_DTYPE[sig.dtype], sharding=sharding)


def _numbers(n: int, dtype: Any, sharding: Any) -> Any:
    """The argument for ``n`` packed numbers: one array, or one for each (strict parity)."""
    if parity.strict:
        return (jax.ShapeDtypeStruct((), dtype, sharding=sharding),) * n
    return jax.ShapeDtypeStruct((n,), dtype, sharding=sharding)


#: How several ranks run a graph with collectives; set by :mod:`xlaprof.runtime.distributed`, which records them.
place_collectives: Callable[..., Any] | None = None


def placement_of(graph: Graph, device: jax.Device, *, agreed: bool = True) -> Any:
    """How several ranks run ``graph`` together; ``None`` if it has no collectives."""
    if not any(getattr(node.op, "collective", False) for node in graph.nodes):
        return None
    assert place_collectives is not None, "collectives are recorded by xlaprof.runtime.distributed alone"
    return place_collectives(graph, device, agreed=agreed)


def _scope(node: Any) -> str:
    """``Decoder/Block/model.py:31``: the operation's name in device profiles."""
    place = file_line(node.frames[0].file, node.frames[0].line) if node.frames else "unknown"
    return f"{node.module}/{place}" if node.module else place
