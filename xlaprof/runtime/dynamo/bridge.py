"""From an FX graph to something that runs it: :func:`extract_compiled_graph`, under PyTorch/XLA's name.

A graph becomes one program. A node that cannot be part of one (no lowering, host tensors) splits it: the program before
the node, the node by itself, the program after it. Each combination of numbers among the arguments (sizes, where shapes
are dynamic) is another program of the same graph.
"""

from __future__ import annotations

import operator
import os
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import fx
from torch.fx.passes.split_module import split_module
from torch.utils._pytree import tree_leaves

from xlaprof.recording import stacks
from xlaprof.runtime import metrics, parity
from xlaprof.runtime.execution import barrier, value_checks
from xlaprof.runtime.execution.program import Program
from xlaprof.runtime.modes.eager import eager_mode_context
from xlaprof.runtime.tape import tapes
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace.tensor import XLATensor

from . import variant
from .executable import Executable, constant, executable_for
from .sketch import Sketch, Split, lay_out

#: programs kept per graph, one for each combination of numbers among its arguments
VARIANTS = 256


def extract_compiled_graph(xla_model: fx.GraphModule, xla_args: Any) -> Callable[..., Any]:
    """``xla_model`` compiled for arguments like ``xla_args``: a function that is called as the graph is.

    The graph may write to its arguments and to tensors of its own. What is pending on the device is run first, as in
    PyTorch/XLA. Host tensors are accepted: alone they stay on the host, with a warning for each.
    """
    args = list(xla_args)
    for arg in args:
        if isinstance(arg, torch.Tensor) and arg.device.type != "xla" and arg.ndim:  # a 0-dim one may be a number
            message = (
                f"Found tensor with shape {arg.size()} on {arg.device}. "
                "Please move all tensors to xla device to execute on XLA device."
            )
            at = stacks.user_frames(1)[0]
            warnings.warn_explicit(message, UserWarning, at.file, at.line)
    if not _touches_xla(xla_model, args):
        return xla_model
    if parity.strict:
        metrics.clear_counters()  # PyTorch/XLA looks for fallbacks here, and forgets what it counted before
    metrics.count("DynamoExtractCompiledGraph")
    tape = _tape_of(xla_model, args)
    for arg in args:
        if type(arg) is XLATensor:
            constant(tape, arg._storage)
    barrier.barrier(tape, "dynamo_inputs")
    compiled = Compiled(xla_model, tape)
    return compiled.prepared(args)


def partition_fx_graph_for_cpu_fallback(
    xla_model: fx.GraphModule, xla_args: Any, all_xla_args: Any = None, all_xla_args_tensor_only: Any = None
) -> Callable[..., Any]:
    """``xla_model`` as programs, with what has no lowering between them. Only the first two arguments matter."""
    return Compiled(xla_model, _tape_of(xla_model, list(xla_args))).prepared(list(xla_args))


class Compiled:
    """An FX graph and the programs it was compiled to."""

    def __init__(self, module: fx.GraphModule, tape: Tape) -> None:
        self.module = module
        self.tape = tape
        self.sketch = Sketch(tape)
        self.variants: OrderedDict[Any, Executable] = OrderedDict()
        self.pieces: Callable[..., Any] | None = None
        self.numeric: tuple[int, ...] | None = None  # places of arguments that are numbers
        self.last: variant.Given | None = None  # the arguments it was compiled for last

    def prepared(self, args: list[Any]) -> Callable[..., Any]:
        """This, ready to be called with ``args``."""
        self._variant(args)
        return self.pieces or self

    def __call__(self, *args: Any) -> Any:
        if self.numeric is None:
            self.numeric = tuple(i for i, arg in enumerate(args) if not isinstance(arg, torch.Tensor))
        found = self.variants.get((value_checks.enabled, *[args[i] for i in self.numeric]))
        if found is None:
            found = self._variant(list(args))
            if found is None:
                assert self.pieces is not None
                return self.pieces(*args)
        return found(args)

    def _variant(self, args: list[Any]) -> Executable | None:
        """The program for ``args``; ``None`` where it takes several."""
        if self.pieces is not None:
            return None
        try:
            with eager_mode_context(False):
                layout = lay_out(self.module, args, self.sketch)
        except Split as split:
            if parity.strict:
                _run_to_see_what_falls_back(self.module, args, self.tape)
            self.pieces = _in_pieces(self.module, split.apart, self.tape)
            return None
        made = executable_for(self.tape, layout, args, self.last)
        self.last = variant.given(args, made.program.number if isinstance(made.program, Program) else 0)
        self.sketch.reset()
        numbers = [arg for arg in args if not isinstance(arg, torch.Tensor)]
        self.variants[(value_checks.enabled, *numbers)] = made
        if len(self.variants) > VARIANTS:
            self.variants.popitem(last=False)
        return made


def _in_pieces(module: fx.GraphModule, apart: frozenset[fx.Node], tape: Tape) -> Callable[..., Any]:
    """``module`` as programs, and between them, one by one, the nodes ``apart``, in their order."""
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("XLA_DYNAMO_DEBUG", "PT_XLA_DEBUG")):
        print(f"Dynamo fallback ops are {sorted(apart, key=str)}")
    number = 0
    part: dict[fx.Node, int] = {}
    before_apart = False
    for node in module.graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        if node.target is operator.getitem and node.args[0] in apart:  # a piece takes tensors, no tuples of them
            part[node] = part[node.args[0]]
            continue
        is_apart = node in apart
        if part and (is_apart or before_apart):
            number += 1
        part[node] = number
        before_apart = is_apart
    alone = {part[node] for node in apart}
    pieces = split_module(module, module, lambda node: part.get(node, 0), keep_original_order=True)
    for name, piece in list(pieces.named_children()):
        if name.startswith("submod_") and int(name.removeprefix("submod_")) not in alone:
            setattr(pieces, name, _Piece(cast(fx.GraphModule, piece), tape))
    return pieces


def _run_to_see_what_falls_back(module: fx.GraphModule, args: list[Any], tape: Tape) -> None:
    """Do as PyTorch/XLA does before it splits a graph: run it, and again for the inputs of its pieces.

    Its effects on the arguments are undone afterwards. The compilations and runs are counted.
    """
    tensors = [arg for arg in args if type(arg) is XLATensor]
    with torch.no_grad(), eager_mode_context(False):
        before = [tensor.clone() for tensor in tensors]
        for _ in range(2):
            fx.Interpreter(module).run(*args)
        for tensor, copy in zip(tensors, before, strict=True):
            tensor.copy_(copy)
        del before
        barrier.barrier(tape, "dynamo_inputs")


class _Piece(torch.nn.Module):
    """One of the programs that a graph was split into."""

    def __init__(self, module: fx.GraphModule, tape: Tape) -> None:
        super().__init__()
        self.compiled = Compiled(module, tape)

    def forward(self, *args: Any) -> Any:
        return self.compiled(*args)


def _touches_xla(module: fx.GraphModule, args: list[Any]) -> bool:
    """Does the graph have a tensor on the device, or bring one there?"""
    tensors = [*args, *module.parameters(), *module.buffers()]
    if any(type(tensor) is XLATensor for tensor in tensors):
        return True
    for node in module.graph.nodes:
        if node.op == "get_attr" and type(operator.attrgetter(str(node.target))(module)) is XLATensor:
            return True
        if any(_names_xla(leaf) for leaf in tree_leaves((node.args, node.kwargs))):
            return True
    return False


def _names_xla(leaf: Any) -> bool:
    if isinstance(leaf, str):
        return leaf == "xla" or leaf.startswith("xla:")
    return isinstance(leaf, torch.device) and leaf.type == "xla"


def _tape_of(module: fx.GraphModule, args: list[Any]) -> Tape:
    for tensor in (*args, *module.parameters(), *module.buffers()):
        if type(tensor) is XLATensor:
            return tensor._storage.tape  # type: ignore[no-any-return]
    return tapes.tape()
