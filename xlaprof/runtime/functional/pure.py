"""Trace a function of tensors once, so that one recorded operation computes it: both passes, as jax functions.

AOTAutograd makes FX graphs of the forward and the backward pass, over fake tensors; each is laid out on an abstract
tape, as a graph of ``torch.compile`` is, and evaluated where jax traces. Tensors that the function reads besides its
arguments become arguments, so that gradients reach them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from xlaprof.runtime.dynamo.sketch import COMPUTED, CONSTANT, Layout, Output, Sketch, Split, lay_out
from xlaprof.runtime.tape import tapes
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace.evaluate import Evaluator
from xlaprof.runtime.trace.storage import NOWHERE, Storage, sig
from xlaprof.runtime.trace.tensor import XLATensor, handle

_here = threading.local()

Flat = Callable[[list[Any]], list[Any]]


class Untraceable(Exception):
    """The function depends on values, or has effects: it has to be called each time."""


@dataclass(frozen=True)
class Pass:
    """One pass: a graph, called with arrays in the order of its arguments and then of ``constants``."""

    layout: Layout

    @property
    def constants(self) -> tuple[torch.Tensor, ...]:
        """Tensors on the device that the function makes from constant numbers."""
        return self.layout.captured

    @property
    def outputs(self) -> tuple[Output, ...]:
        """Where each result comes from."""
        return self.layout.outputs

    @property
    def rows(self) -> int:
        """Rows of random bits (u32[2] each) that a call needs."""
        return len(self.layout.graph.seeds)

    @property
    def key(self) -> Any:
        """Equal for passes that compute the same."""
        found = self.layout
        outputs = tuple((out.kind, None if out.kind == CONSTANT else out.at) for out in found.outputs)
        return found.graph.hash, found.sources, outputs, found.floats, found.ints

    def __call__(self, pool: Sequence[Any], seeds: Any) -> list[Any]:
        """The results over jax arrays; ``None`` for a missing gradient."""
        found, graph = self.layout, self.layout.graph
        values = {slot: pool[place] for slot, place in zip(graph.inputs, found.sources, strict=True)}
        floats, ints = np.array(found.floats, np.float64), np.array(found.ints, np.int64)
        Evaluator(values, jnp.asarray(floats), jnp.asarray(ints), seeds, graph.numbering).evaluate(graph.nodes)
        results = [values[slot] for slot in graph.outs]
        return [
            results[out.at] if out.kind == COMPUTED else None if out.kind == CONSTANT else pool[out.at]
            for out in found.outputs
        ]


@dataclass(frozen=True)
class Traced:
    """Both passes of a function. ``forward`` returns its results, then what ``backward`` reads besides tangents."""

    captured: tuple[torch.Tensor, ...]  # tensors it reads besides its arguments: ``forward`` takes them last
    written: tuple[bool, ...]  # which of its arguments it writes to (it gets copies of them)
    forward: Pass
    backward: Pass | None  # None: no gradient passes
    results: int
    differentiable: tuple[bool, ...]  # which of the results ``backward`` takes a tangent of


@dataclass(frozen=True)
class Like:
    """An argument, as far as the trace depends on it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool  # a gradient passes through it
    gradient_needed: bool  # and the caller needs it; if no gradient is needed, there is no backward pass


def trace(fn: Flat, arguments: Sequence[Like], tape: Tape, partition: Any = None) -> Traced:
    """Trace ``fn``, a function from a list of tensors to another, for ``arguments`` like these on ``tape``'s device.

    ``partition`` decides what the forward pass keeps for the backward pass: by default PyTorch's
    ``default_partition``, which keeps all. ``fn`` is called several times, with fake tensors.
    Raises :class:`Untraceable`, or whatever ``fn`` raises.
    """
    grad = torch.is_grad_enabled()
    _here.tracing = True
    try:
        with torch.inference_mode(False), torch.set_grad_enabled(grad):
            return _traced(fn, arguments, tape, partition)
    except (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException) as error:
        raise Untraceable(f"what it does depends on values: {error}") from error
    except Split as error:
        raise Untraceable(f"these are no part of a program: {error}") from error
    finally:
        _here.tracing = False


def _traced(fn: Flat, arguments: Sequence[Like], tape: Tape, partition: Any) -> Traced:
    device, grad = torch.device("xla", tape.index), torch.is_grad_enabled()
    fake = FakeTensorMode()
    given = [_fake(fake, like, device, like.requires_grad and grad) for like in arguments]
    captures = _Captures(fake, grad)
    with fake, captures:
        shown = [tensor.clone() for tensor in given]  # leaves cannot be written to
        before = [tensor._version for tensor in shown]
        fn(list(shown))
    if captures.written():
        raise Untraceable("it writes to a tensor that is no argument")
    written = tuple(tensor._version != version for tensor, version in zip(shown, before, strict=True))
    held = list(captures.found.values())
    wants = [like.requires_grad for like in arguments] + [real.requires_grad for real, _ in held]
    backward = grad and (any(like.gradient_needed for like in arguments) or any(wants[len(given) :]))

    def function(*tensors: torch.Tensor) -> list[torch.Tensor]:
        own_inputs = [t.clone() if w else t for t, w in zip(tensors, written, strict=False)]
        lifted = {id(real): tensor for (real, _), tensor in zip(held, tensors[len(given) :], strict=True)}
        with _Lifted(lifted):
            return [result.clone() for result in fn(own_inputs)]  # copies: none is an argument or a view of another

    inputs = [tensor.detach() for tensor in (*given, *(stand_in for _, stand_in in held))]
    for leaf, wanted in zip(inputs, wants, strict=True):
        leaf.requires_grad_(backward and wanted)
    with torch.set_grad_enabled(backward):
        graphs, outs = _through_autograd(function, inputs, partition)
    sketch = Sketch(tape)
    passes = [_laid_out(graph, sketch) for graph in graphs]
    return Traced(
        captured=tuple(real for real, _ in held),
        written=written,
        forward=passes[0],
        backward=passes[1] if len(passes) > 1 else None,
        results=len(outs),
        differentiable=tuple(out.requires_grad for out in outs),
    )


def _through_autograd(
    function: Callable[..., list[torch.Tensor]], inputs: list[torch.Tensor], partition: Any
) -> tuple[list[Any], list[torch.Tensor]]:
    """FX graphs of the forward pass, and of the backward pass if there is one; and the results, fakes as ``inputs``."""
    from torch._functorch.aot_autograd import aot_function
    from torch._functorch.partitioners import default_partition

    graphs: list[Any] = []

    def keep(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        (returned,) = graph.graph.find_nodes(op="output")[0].args
        results = [node.meta["val"] if isinstance(node, torch.fx.Node) else node for node in returned]

        def run(arguments: list[Any]) -> list[Any]:
            arguments.clear()
            return results  # nothing has to be computed

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    how: dict[str, Any] = {"fw_compiler": keep, "bw_compiler": keep, "partition_fn": partition or default_partition}
    compiled = aot_function(function, **how)
    outs = list(compiled(*inputs))
    roots = [out for out in outs if out.requires_grad]
    if roots:
        wanted = [tensor for tensor in inputs if tensor.requires_grad]
        torch.autograd.grad(roots, wanted, [torch.ones_like(root) for root in roots], allow_unused=True)
    return graphs, outs


def tracing() -> bool:
    """Is a function being traced on this thread? Functions that it calls are then part of it."""
    return getattr(_here, "tracing", False)


def refuse_second_gradients(name: str) -> None:
    """Raise ``RuntimeError`` in a backward pass that builds a graph: second gradients would lack terms."""
    if torch.is_grad_enabled():
        raise RuntimeError(f"{name} has no second gradients: leave out create_graph=True, or call the function itself")


def modes() -> tuple[Any, ...]:
    """The settings that a trace depends on besides its arguments."""
    lowered = torch.is_autocast_enabled("xla"), torch.get_autocast_dtype("xla")
    return torch.is_grad_enabled(), torch.get_default_dtype(), *lowered


def _fake(mode: FakeTensorMode, like: Any, device: torch.device, requires_grad: bool) -> torch.Tensor:
    with mode:
        made: torch.Tensor = torch.empty(like.shape, dtype=like.dtype, device=device)
    return made.requires_grad_(requires_grad)


def _laid_out(module: Any, sketch: Sketch) -> Pass:
    stand_ins = []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            value = node.meta["val"]
            if value.device.type != "xla":
                raise Untraceable(f"it reads a tensor on {value.device}")
            signature = sig(tuple(value.shape), value.dtype)
            stand_ins.append(handle(Storage(sketch, signature, 0, NOWHERE, 0, object())))
    layout = lay_out(module, stand_ins, sketch)
    sketch.reset()
    if any(out.kind == CONSTANT and out.at is not None for out in layout.outputs):
        raise Untraceable("it returns a tensor that is not on xla")
    if layout.writes or any(getattr(node.op, "collective", False) for node in layout.graph.nodes):
        raise Untraceable("it has effects")
    return Pass(layout)


class _Replacing(TorchFunctionMode):
    """Calls PyTorch's functions with other arguments."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*tree_map(self.instead, args), **tree_map(self.instead, kwargs or {}))

    def instead(self, leaf: Any) -> Any:
        """The argument to pass in place of ``leaf``."""
        if isinstance(leaf, torch.device) and leaf.type == "xla" and leaf.index is None:
            return torch.device("xla", tapes.tape().index)  # fake tensors know no current device
        if type(leaf) is str and leaf == "xla":
            return torch.device("xla", tapes.tape().index)
        return leaf


class _Captures(_Replacing):
    """Replaces tensors on ``xla`` that a function reads besides its arguments by fake ones, and collects them."""

    def __init__(self, fake: FakeTensorMode, grad: bool) -> None:
        super().__init__()
        self.fake, self.grad = fake, grad
        self.found: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by id: the tensor, and its fake one
        self._versions: dict[int, int] = {}

    def written(self) -> bool:
        """Was any of them written to?"""
        return any(stand_in._version != self._versions[key] for key, (_, stand_in) in self.found.items())

    def instead(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or isinstance(leaf, FakeTensor):
            return super().instead(leaf)
        if not isinstance(leaf, XLATensor):
            if leaf.ndim == 0 and not leaf.requires_grad:
                return leaf  # a number
            raise Untraceable(f"it reads a tensor on {leaf.device}")
        if leaf.requires_grad and self.grad and not torch.is_grad_enabled():
            raise Untraceable("gradients of a tensor that is no argument are its own affair")
        if id(leaf) not in self.found:
            stand_in = _fake(self.fake, leaf, leaf.device, leaf.requires_grad and self.grad)
            self.found[id(leaf)] = (leaf, stand_in)
            self._versions[id(leaf)] = stand_in._version
        return self.found[id(leaf)][1]


class _Lifted(_Replacing):
    """Replaces captured tensors by the arguments that stand for them."""

    def __init__(self, arguments: dict[int, torch.Tensor]) -> None:
        super().__init__()
        self.arguments = arguments

    def instead(self, leaf: Any) -> Any:
        return self.arguments.get(id(leaf), leaf) if isinstance(leaf, XLATensor) else super().instead(leaf)
