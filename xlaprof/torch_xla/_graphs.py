"""Pending graphs as text: operations (IR), XLA's HLO, StableHLO, Graphviz."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import torch
from jaxlib import _jax

from xlaprof.runtime.execution.build import placement_of
from xlaprof.runtime.lowering.registry import JAX_DTYPE, TORCH_DTYPE
from xlaprof.runtime.spmd import sharding_of
from xlaprof.runtime.tape import ir_text, tapes
from xlaprof.runtime.tape.graph import Graph, extract
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace.evaluate import Evaluator
from xlaprof.runtime.trace.storage import Failed, Storage, base_of
from xlaprof.runtime.trace.tensor import XLATensor
from xlaprof.runtime.trace.trie import Node
from xlaprof.runtime.transfer import host
from xlaprof.text.strings import file_line


def is_pending(storage: Storage) -> bool:
    """Will the next barrier compute its value?"""
    return storage.epoch == storage.tape.epoch and storage.slot not in storage.tape.input_at


def _has_value(storage: Storage) -> bool:
    """Has ``storage`` a value, or a recorded one? For any other, ``slot_of`` would record zeros."""
    base = base_of(storage)
    return base.array is not None or base.epoch == base.tape.epoch


def graph_of(tensors: Sequence[torch.Tensor]) -> tuple[Tape, Graph] | None:
    """The pending graph of ``tensors``, by default of all live ones; ``None`` where nothing is pending."""
    ours = [tensor._storage for tensor in tensors if isinstance(tensor, XLATensor)]
    tape = ours[0].tape if ours else tapes.tape()
    with tape.lock:
        slots = [tape.slot_of(storage) for storage in (ours if tensors else tape.live()) if _has_value(storage)]
        outs = tuple(sorted({slot for slot in slots if tensors or slot not in tape.input_at}))
        return (tape, extract(tape.node, outs, tape.input_at)) if outs else None


def _lowered(tensors: Sequence[torch.Tensor]) -> Any:
    """The graph as ``jax.stages.Lowered``: its parameters are the packed scalars and the inputs."""
    found = graph_of(tensors)
    if found is None:
        raise RuntimeError("nothing is pending: what was recorded has been run, or nothing was")
    return _lower(*found, [tensor._storage for tensor in tensors if isinstance(tensor, XLATensor)])


def _lower(tape: Tape, graph: Graph, storages: Sequence[Any] = ()) -> Any:
    partition = tape.partition
    shardings = () if partition is None else partition.output_shardings(tape, storages, graph.outs)

    def pending(floats: Any, ints: Any, seeds: Any, *inputs: Any) -> list[Any]:
        if partition is not None:
            inputs = tuple(partition.unpadded(inputs, graph))
        values = dict(zip(graph.inputs, inputs, strict=True))
        make = partition.evaluator(graph) if partition else Evaluator
        evaluator = make(values, floats, ints, seeds, graph.numbering)

        def named(node: Node, seed: int) -> tuple[jax.Array, ...]:
            with jax.named_scope(_name_of(node)):
                results: tuple[jax.Array, ...] = evaluator.call(node, seed)
                return results

        evaluator.evaluate(graph.nodes, named if ir_debug() else None)
        outputs = [values[slot] for slot in graph.outs]
        return outputs if partition is None else partition.constrained(outputs, shardings)

    sizes: list[tuple[tuple[int, ...], Any]] = [
        ((len(graph.floats),), jax.numpy.float64),
        ((len(graph.ints),), jax.numpy.int64),
        ((len(graph.seeds), 2), jax.numpy.uint32),
    ]
    if partition is None:
        sizes += [(s.shape, JAX_DTYPE[s.dtype]) for s in graph.sigs]
    inputs = [] if partition is None else partition.avals(graph)
    shared = placement_of(graph, tape.device, agreed=False)
    sharding = None if shared is None else shared.sharding
    program = pending if shared is None else shared.on_all_ranks(pending)
    with jax.enable_x64(True):
        given = (jax.ShapeDtypeStruct(shape, dtype, sharding=sharding) for shape, dtype in sizes)
        return jax.jit(program).lower(*given, *inputs)


_override: bool | None = None


def ir_debug() -> bool:
    """Does HLO text name each instruction's operation, module and line (``XLA_HLO_DEBUG=1``)?"""
    if _override is not None:
        return _override
    names = ("XLA_IR_DEBUG", "XLA_HLO_DEBUG")
    return any(os.environ.get(name, "").lower() in ("1", "true", "on", "yes", "y") for name in names)


def set_ir_debug(on: bool) -> None:
    """Override :func:`ir_debug` from now on."""
    global _override
    _override = on


def _name_of(node: Node) -> str:
    """``Sequential/Linear/aten__addmm/train.py:31``."""
    assert node.op is not None
    aten = node.op.aten.replace("::", "__")
    place = [file_line(frame.file, frame.line) for frame in node.frames[:1]]
    return "/".join([*([node.module] if node.module else []), aten, *place])


def hlo(tensors: Sequence[torch.Tensor]) -> str:
    """The graph as HLO text, before XLA's optimizations or, with ``XLA_DUMP_POST_OPTIMIZATIONS``, after them.

    With :func:`ir_debug` each instruction has ``metadata={op_name="..."}``: module, operation and the user's line.
    """
    if os.environ.get("XLA_DUMP_POST_OPTIMIZATIONS", "0").lower() in ("1", "true"):
        return str(_lowered(tensors).compile().as_text())
    lowered = _lowered(tensors)
    if ir_debug():
        return _text_of(lowered.compiler_ir(dialect="hlo").get_hlo_module(), metadata=True)
    return _printed(str(lowered.compiler_ir(dialect="stablehlo")))


def _text_of(module: Any, *, metadata: bool) -> str:
    options = sys.modules[type(module).__module__].HloPrintOptions()  # jaxlib has moved it before
    options.print_operand_shape = True
    options.print_metadata = metadata
    return str(module.to_string(options))


def _printed(stablehlo: str) -> str:
    """HLO as PyTorch/XLA prints it, and scripts match it: ``%dot.5 = f32[2,2]{1,0} dot(f32[2,3]{1,0} %p0.1, ...)``.

    From text, which has no locations, so that instructions are named after their opcodes.
    """
    module: Any = _jax.mlir.mlir_module_to_xla_computation(
        stablehlo, use_tuple_args=False, return_tuple=False
    ).get_hlo_module()
    return _text_of(module, metadata=False)


def hlo_proto(tensors: Sequence[torch.Tensor]) -> bytes:
    """The graph as a serialized ``HloModuleProto``."""
    serialized: bytes = _lowered(tensors).compiler_ir(dialect="hlo").as_serialized_hlo_module_proto()
    return serialized


def module_and_parameters(tensors: Sequence[torch.Tensor]) -> tuple[bytes, dict[int, Any]]:
    """:func:`hlo_proto`, and the value of each of the module's parameters: packed scalars, or an input's array."""
    lowered = _lowered(tensors)
    found = graph_of(tensors)
    assert found is not None
    tape, graph = found
    numbers = (
        np.array([tape.floats[packed.index] for packed in graph.floats], np.float64),
        np.array([tape.ints[packed.index] for packed in graph.ints], np.int64),
        np.array([tape.seeds[row] for row in graph.seeds], np.uint32),
    )
    given = [*numbers, *(tape.arrays[position] for position in graph.positions)]
    kept = sorted(lowered._lowering.compile_args["kept_var_idx"])  # jax drops arguments that nothing reads
    module: bytes = lowered.compiler_ir(dialect="hlo").as_serialized_hlo_module_proto()
    return module, {number: given[i] for number, i in enumerate(kept)}


def value_of(array: Any) -> torch.Tensor:
    """An array's value, as a tensor on the host."""
    read = np.asarray(array)
    return host.to_torch(read, TORCH_DTYPE[read.dtype])


def stablehlo(tensors: Sequence[torch.Tensor] | None = None) -> str:
    """The pending graph of ``tensors``, by default of all live ones, as StableHLO text."""
    return str(_lowered(tensors or ()).as_text(dialect="stablehlo"))


def stablehlo_bytecode(tensors: Sequence[torch.Tensor] | None = None) -> bytes:
    """:func:`stablehlo` as MLIR bytecode."""
    out = io.BytesIO()
    _lowered(tensors or ()).compiler_ir(dialect="stablehlo").operation.write_bytecode(out)
    return out.getvalue()


# -- operations ----------------------------------------------------------------------------------------------


def text(tensors: Sequence[torch.Tensor]) -> str:
    """The pending operations of ``tensors``, as PyTorch/XLA prints its IR."""
    return _text(graph_of(tensors))


def _text(found: tuple[Tape, Graph] | None) -> str:
    return ir_text.printed(ir_text.rows(*found) if found is not None else ())


def dot(tensors: Sequence[torch.Tensor]) -> str:
    """The pending operations of ``tensors``, for Graphviz."""
    return _dot(graph_of(tensors))


def _dot(found: tuple[Tape, Graph] | None) -> str:
    lines = ["digraph G {"]
    edges = []
    for number, name, operands, shape, _ in ir_text.rows(*found) if found is not None else ():
        lines.append(f'  node{number} [label="{name}\\n{shape}"]')
        edges += [f"  node{operand} -> node{number}" for operand in operands]
    return "\n".join([*lines, *edges, "}\n"])


def rendered(kind: str, tape: Tape, graph: Graph) -> str:
    """A graph of ``tape`` as ``"text"``, ``"dot"``, ``"hlo"`` or ``"stablehlo"``."""
    if kind in ("text", "dot"):
        return {"text": _text, "dot": _dot}[kind]((tape, graph))
    module = str(_lower(tape, graph).compiler_ir(dialect="stablehlo"))
    return module if kind == "stablehlo" else _printed(module)


def save_tensors_graph(save_dir: str, name: str, tensors: list[torch.Tensor]) -> None:
    """Write the pending graph of ``tensors`` into ``save_dir``, as ``{name}-hlo.txt``, ``-ir.txt`` and ``-dot.txt``."""
    for kind, write in (("hlo", hlo), ("ir", text), ("dot", dot)):
        with open(os.path.join(save_dir, f"{name}-{kind}.txt"), "w") as file:
            file.write(write(tensors))


def debug_info(tensor: torch.Tensor) -> str:
    """Debug text of one tensor: its value on the device, or the pending operation that computes it."""
    if not isinstance(tensor, XLATensor):
        return "Not a XLATensor\n"
    storage = tensor._storage
    tape = storage.tape
    pending = is_pending(storage)
    lines = [
        f"XLA Tensor: {hex(id(storage))}",
        f"XLA Shape: {ir_text.shape_of(storage.sig)}",
        f"Device: {ir_text.device_name(tape)}",
    ]
    if tape.partition is not None and not pending:
        lines += _sharded(tensor)
    elif pending:
        lines += ["XLAData: None", "IR:", text([tensor]).rstrip()]
    else:
        held = getattr(storage, "array", None)
        lines += [
            "XLAData:",
            f"  Data Device: {ir_text.device_name(tape)}",
            f"  Data Shape: {ir_text.shape_of(storage.sig)}",
        ]
        lines += [f"  Data Handle: {'Deleted' if type(held) is Failed else hex(id(held))}", "IR: None"]
    return "\n".join(lines) + "\n"


def _sharded(tensor: XLATensor) -> list[str]:
    """For a value at rest on several devices: whether it is on the host, and its sharding."""
    storage = tensor._storage
    how = sharding_of(tensor)
    if how is None:
        return ["IR: None", "XLAData: None", f"Tensor on host: with size {list(storage.sig.shape)}"]
    used = storage.epoch == storage.tape.epoch or storage.sharding is not None
    shape = ir_text.shape_of(storage.sig)
    return [
        f"IR: [] {shape} xla::device_data, device={ir_text.device_name(storage.tape)}, sharding={how}"
        if used
        else "IR: None",
        "XLAData: None" if storage.array is None else "XLAShardedData:",
        f"  Data Device: {ir_text.device_name(storage.tape)}",
        f"  Data Shape: {shape}",
        f"  OpSharding: {how}",
        f"  NumShards: {len(tapes.devices())}",
        "Tensor on host: None",
    ]
