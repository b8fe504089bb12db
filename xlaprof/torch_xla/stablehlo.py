"""``torch_xla.stablehlo``: exported programs as StableHLO.

An exported program is recorded once, over inputs of the shapes it was exported with; its graph is lowered by the
runtime's table. Parameters and buffers become arguments of the function.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
import torch
from torch.utils import _pytree as pytree

from xlaprof.runtime.lowering.registry import JAX_DTYPE, TORCH_DTYPE
from xlaprof.runtime.tape import tapes
from xlaprof.runtime.tape.graph import extract
from xlaprof.runtime.trace.evaluate import Evaluator
from xlaprof.runtime.trace.tensor import XLATensor
from xlaprof.runtime.transfer import host


@dataclass
class StableHLOExportOptions:
    """What is exported and written."""

    #: :meth:`StableHLOGraphModule.save` writes the program as text too
    include_human_readable_text: bool = True
    #: arguments to record the program with, in place of those it was exported with
    override_tracing_arguments: tuple[Any, ...] | None = None
    override_tracing_kwargs: Mapping[str, Any] | None = None
    #: :meth:`StableHLOGraphModule.save` writes the weights
    save_weights: bool = True
    #: no effect: numbers are always constants of the program
    inline_all_constant: bool = True
    #: the module keeps its weights; without them it can be written, not called
    export_weights: bool = True
    #: not served
    custom_ops_allowed_in_graph: set[str] = field(default_factory=set)
    export_node_metadata: bool = False

    def require_served(self) -> None:
        """Raise ``NotImplementedError`` for an option that is not served."""
        for name in ("custom_ops_allowed_in_graph", "export_node_metadata"):
            if given := getattr(self, name):
                raise NotImplementedError(
                    f"StableHLOExportOptions.{name}={given!r} is not served by xlaprof: leave it out"
                )


@dataclass(frozen=True)
class _Signature:
    """How a program is called: the structures of ``(args, kwargs)`` and of the results, and their fixed leaves."""

    names: tuple[str, ...]  # of the keyword arguments, in order
    spec: pytree.TreeSpec
    fixed: dict[int, Any]  # leaves that are no tensors: part of the program
    out_spec: pytree.TreeSpec
    out_fixed: dict[int, Any]

    def tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The tensors among the arguments. Raises ``TypeError`` or ``ValueError`` if they are not the program's."""
        if set(kwargs) == set(self.names):
            kwargs = {name: kwargs[name] for name in self.names}
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != self.spec:
            raise TypeError(f"the program was exported with arguments {self.spec}, and called with {spec}")
        for i, value in self.fixed.items():
            if leaves[i] != value:
                raise ValueError(f"{value!r} is part of the exported program, which was called with {leaves[i]!r}")
        return [leaf for i, leaf in enumerate(leaves) if i not in self.fixed]

    def to_json(self) -> dict[str, Any] | None:
        """This in JSON's types; ``None`` where a fixed leaf has no such type."""
        fixed, out_fixed = list(self.fixed.items()), list(self.out_fixed.items())
        if not all(_is_plain(value) for _, value in (*fixed, *out_fixed)):
            return None
        return {
            "names": self.names,
            "arguments": pytree.treespec_dumps(self.spec),
            "fixed": fixed,
            "results": pytree.treespec_dumps(self.out_spec),
            "fixed_results": out_fixed,
        }

    @staticmethod
    def from_json(written: dict[str, Any]) -> _Signature:
        """The inverse of :meth:`to_json`."""
        return _Signature(
            tuple(written["names"]),
            pytree.treespec_loads(written["arguments"]),
            dict(written["fixed"]),
            pytree.treespec_loads(written["results"]),
            dict(written["fixed_results"]),
        )

    def results(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The program's results, from the tensors it computed."""
        computed = iter(tensors)
        count = self.out_spec.num_leaves
        leaves = [self.out_fixed[i] if i in self.out_fixed else next(computed) for i in range(count)]
        return pytree.tree_unflatten(leaves, self.out_spec)


class StableHLOGraphModule:
    """A program as StableHLO, with the weights it takes: callable, written by :meth:`save`, read by :meth:`load`."""

    def __init__(
        self, exported: jax.export.Exported, weights: dict[str, np.ndarray[Any, Any]], signature: _Signature
    ) -> None:
        self._exported = exported
        self._weights = weights
        self._signature = signature
        self.state_dict = weights

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program: results are tensors on the host. Arguments that were no tensors at export are fixed.

        Raises ``RuntimeError`` where the weights are missing.
        """
        tensors = self._signature.tensors(args, kwargs)
        if missing := len(self._exported.in_avals) - len(tensors) - len(self._weights):
            raise RuntimeError(f"the program takes {missing} weights that it was exported or saved without")
        with jax.enable_x64(True):
            given = [host.to_numpy(torch.as_tensor(tensor).detach().cpu()) for tensor in tensors]
            results = self._exported.call(*self._weights.values(), *given)
        return self._signature.results([_to_torch(r) for r in results])

    def evaluate(self, method_name: str, args: tuple[Any, ...]) -> Any:
        """``self(*args)``: the program has one method, ``"forward"``."""
        return self(*args)

    def get_stablehlo_text(self, method_name: str | None = None) -> str:
        """The program as text."""
        return str(self._exported.mlir_module())

    def get_stablehlo_bytecode(self, method_name: str | None = None) -> bytes:
        """The program as portable bytecode."""
        return bytes(self._exported.mlir_module_serialized)

    def save(self, stablehlo_dir: str, options: StableHLOExportOptions | None = None) -> None:
        """Write the program as text and bytecode, and the weights as ``.npy`` files, into the folder."""
        options = options or StableHLOExportOptions()
        weights = self._weights if options.save_weights else {}
        functions, data = (os.path.join(stablehlo_dir, name) for name in ("functions", "data"))
        for folder in (functions, data):
            os.makedirs(folder, exist_ok=True)
        if options.include_human_readable_text:
            with open(os.path.join(functions, "forward.mlir"), "w") as file:
                file.write(self.get_stablehlo_text())
        with open(os.path.join(functions, "forward.bytecode"), "wb") as binary:
            binary.write(self.get_stablehlo_bytecode())
        for name, value in weights.items():
            np.save(os.path.join(data, f"{name}.npy"), value)
        meta = {
            "name": "forward",
            "weights": list(weights),
            "inputs": _shapes(self._exported.in_avals),
            "outputs": _shapes(self._exported.out_avals),
            "version": self._exported.calling_convention_version,
            "signature": self._signature.to_json(),
        }
        with open(os.path.join(functions, "forward.meta"), "w") as file:
            json.dump(meta, file)

    @classmethod
    def load(cls, stablehlo_dir: str) -> StableHLOGraphModule:
        """Read what :meth:`save` wrote into the folder.

        Raises ``FileNotFoundError`` where there is no such program, ``RuntimeError`` for one that cannot be called.
        """
        functions, data = (os.path.join(stablehlo_dir, name) for name in ("functions", "data"))
        with open(os.path.join(functions, "forward.meta")) as file:
            meta = json.load(file)
        if meta.get("signature") is None:
            raise RuntimeError(
                f"the program in {stablehlo_dir} has no signature that could be written down: it was saved by another "
                "version, or what is fixed in it is no number, text, list or None"
            )
        with open(os.path.join(functions, "forward.bytecode"), "rb") as binary:
            bytecode = binary.read()
        inputs, outputs = ([jax.ShapeDtypeStruct(tuple(s), d) for s, d in meta[key]] for key in ("inputs", "outputs"))
        with jax.enable_x64(True):  # a program that is called likewise, with this one in its place
            like = jax.jit(lambda *_: [jax.numpy.zeros(out.shape, out.dtype) for out in outputs], keep_unused=True)
            exported = replace(
                jax.export.export(like)(*inputs),
                mlir_module_serialized=bytecode,
                calling_convention_version=meta["version"],
            )
        weights = {}
        for name, given in zip(meta["weights"], inputs, strict=False):
            read = np.load(os.path.join(data, f"{name}.npy"))
            weights[name] = read.view(given.dtype) if read.dtype.kind == "V" else read  # numpy has no name for bfloat16
        return cls(exported, weights, _Signature.from_json(meta["signature"]))


def _shapes(avals: Sequence[Any]) -> list[Any]:
    return [(list(aval.shape), str(aval.dtype)) for aval in avals]


def _is_plain(value: Any) -> bool:
    return value is None or type(value) in (bool, int, float, str)


def exported_program_to_stablehlo(
    exported_model: Any, options: StableHLOExportOptions | None = None
) -> StableHLOGraphModule:
    """The ``torch.export.ExportedProgram`` as StableHLO. Its inputs follow its parameters and buffers."""
    options = options or StableHLOExportOptions()
    options.require_served()  # a field may have been set since
    state = {**exported_model.state_dict, **exported_model.constants}
    args, kwargs = exported_model.example_inputs
    if options.override_tracing_arguments is not None:
        args, kwargs = options.override_tracing_arguments, options.override_tracing_kwargs
    device = tapes.tape().torch_device
    names = list(state)
    flat, spec = pytree.tree_flatten((args, kwargs or {}))
    ours = [host.send(tapes.tape(), [value.detach().cpu() for value in state.values()]), _moved(flat, device)]
    with torch.no_grad():
        module = exported_model.module()
        module_state = dict(zip(names, ours[0], strict=True))
        inputs, named = pytree.tree_unflatten(ours[1], spec)
        result = torch.func.functional_call(module, module_state, inputs, named)
    outs, out_spec = pytree.tree_flatten(result)
    function, avals = _function([*ours[0], *ours[1]], [out for out in outs if isinstance(out, XLATensor)])
    with jax.enable_x64(True):
        exported = jax.export.export(jax.jit(function, keep_unused=True))(*avals)
    kept = state if options.export_weights else {}
    weights = {name: host.to_numpy(value.detach().cpu()) for name, value in kept.items()}
    signature = _Signature(tuple(kwargs or ()), spec, _others(flat, torch.Tensor), out_spec, _others(outs, XLATensor))
    return StableHLOGraphModule(exported, weights, signature)


def _others(leaves: Sequence[Any], kind: type) -> dict[int, Any]:
    return {i: leaf for i, leaf in enumerate(leaves) if not isinstance(leaf, kind)}


def _moved(values: Sequence[Any], device: torch.device) -> list[Any]:
    tensors = [v.detach().cpu() for v in values if isinstance(v, torch.Tensor)]
    sent = iter(host.send(tapes.tape(), tensors) if tensors else ())
    return [next(sent) if isinstance(v, torch.Tensor) else v for v in values]


def _function(inputs: Sequence[Any], outs: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The pending graph of ``outs`` as a function of the values of ``inputs``, and the abstract values of those."""
    tape = tapes.tape()
    storages = [t._storage for t in inputs if isinstance(t, XLATensor)]
    with tape.lock:
        slots = [tape.slot_of(storage) for storage in storages]
        out_slots = [tape.slot_of(t._storage) for t in outs]
        graph = extract(tape.node, tuple(sorted(set(out_slots))), tape.input_at)
        floats, ints = ([getattr(tape, kind)[p.index] for p in getattr(graph, kind)] for kind in ("floats", "ints"))
        seeds = [tape.seeds[row] for row in graph.seeds]
        held = {slot: tape.arrays[tape.input_at[slot]] for slot in graph.inputs if slot not in slots}

    def function(*arrays: Any) -> list[Any]:
        values = {**held, **dict(zip(slots, arrays, strict=True))}
        numbers = (jax.numpy.array(floats, "float64"), jax.numpy.array(ints, "int64"))
        keys = jax.numpy.array(seeds, "uint32").reshape(-1, 2)
        Evaluator(values, *numbers, keys, graph.numbering).evaluate(graph.nodes)
        return [values[slot] for slot in out_slots]

    return function, [jax.ShapeDtypeStruct(storage.sig.shape, JAX_DTYPE[storage.sig.dtype]) for storage in storages]


def _to_torch(array: Any) -> torch.Tensor:
    return host.to_torch(np.asarray(array), TORCH_DTYPE[np.dtype(array.dtype)])


def save_as_stablehlo(exported_model: Any, stablehlo_dir: str, options: StableHLOExportOptions | None = None) -> None:
    """:func:`exported_program_to_stablehlo`, written into the folder ``stablehlo_dir``."""
    exported_program_to_stablehlo(exported_model, options).save(stablehlo_dir, options)


def save_torch_model_as_stablehlo(
    torchmodel: torch.nn.Module,
    args: tuple[Any, ...],
    path: str,
    options: StableHLOExportOptions | None = None,
    kwargs: dict[str, Any] | None = None,
) -> None:
    """The model, exported over ``args`` and ``kwargs``, written into the folder ``path``."""
    save_as_stablehlo(torch.export.export(torchmodel, args, kwargs), path, options)
