"""New edges of the trie: the only place where recording an operation costs more than a lookup.

For a new edge, PyTorch's meta kernels give the result's shape, the lowering is checked against the arguments, and the
user's stack is read. Steady state never comes here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
import torch

from xlaprof.runtime import metrics, parity
from xlaprof.runtime.clock import clock
from xlaprof.runtime.lowering.registry import JAX_DTYPE, Aval
from xlaprof.runtime.shapes.infer import NoMeta, infer
from xlaprof.runtime.trace import naming, source
from xlaprof.runtime.trace.evaluate import Call
from xlaprof.runtime.trace.ops import SCALAR, TENSOR, TENSORS
from xlaprof.runtime.trace.storage import Sig, View
from xlaprof.runtime.trace.trie import Const, Divergence, Node, Out, Packed, Ref, Spec

if TYPE_CHECKING:
    from xlaprof.runtime.trace.ops import Op


class Pseudo:
    """An operation of the tape's own, with no ATen overload behind it."""

    def __init__(self, name: str, lowering: Any = None) -> None:
        self.name = self.aten = name
        self.lowering = lowering
        self.random = False
        self.func = None
        self.says_all = True  # the name, with the arguments, decides what is computed

    def __repr__(self) -> str:
        return self.name


INPUT: Any = Pseudo("xlaprof.input")


class Piece:
    """The key of an input that is a piece (``split``) of another tensor: views of it have strides over that one."""

    __slots__ = ("dtype", "form", "shape", "text")

    def __init__(self, form: Any) -> None:
        self.form = form  # as of an input that is no piece: programs do not tell them apart
        self.shape, self.dtype, self.text = form.shape, form.dtype, form.text


_pieces: dict[tuple[Any, tuple[int, ...] | None, int | None], Piece] = {}


def piece(form: Any, shown: Out) -> Piece:
    """The one :class:`Piece` of ``form`` with the strides and the offset of ``shown``."""
    key = form, shown.strides, shown.offset
    found = _pieces.get(key)
    return _pieces.setdefault(key, Piece(form)) if found is None else found


def form_of(node: Node) -> Any:
    """Shape and dtype of the value of ``node``, and how it lies on several devices where it is an input."""
    if node.op is not INPUT:
        return node.sig
    return node.key.form if type(node.key) is Piece else node.key


EMPTY: Any = Pseudo("xlaprof.empty", lambda ctx: jnp.zeros(ctx.out[0].shape, ctx.out[0].jax))
#: marks a new default dtype (:mod:`xlaprof.runtime.pytorch.default_dtype`); computes nothing
DEFAULT: Any = Pseudo("xlaprof.default_dtype")


#: floats that a tape's packed floats begin with -> what stands for them there
ALWAYS_PACKED = {value: Packed("f", i) for i, value in enumerate((0.0, 1.0, -1.0))}


class Recording(Protocol):
    """A tape's position in the trie."""

    eager: bool

    node: Node
    nodes: int
    divergence: Any


class Unlowered(Exception):
    """No lowering covers these arguments."""


def grow(
    tape: Recording,
    op: Op,
    key: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    spec: Spec | list[Spec | None] | None = None,
) -> Node:
    """Add the edge ``key`` to the tape's current node and return the new node.

    ``args`` and ``kwargs`` are the user's (tensors, numbers), and ``key`` is ``(op, a key per argument, then a pair
    (name, key) per keyword)``. With ``spec``, the spec of the result (a list: of the results), they are a template.
    Raises what PyTorch raises for bad arguments, and :class:`Unlowered` if the operation has to be decomposed or
    computed on the CPU.
    """
    start = perf_counter_ns()
    parent = tape.node
    node = Node(parent, key, op)
    node.role = source.role()
    specs: list[Spec | None]
    if spec is not None:
        node.args, node.kwargs, specs = args, kwargs, spec if isinstance(spec, list) else [spec]
    else:
        unkey = _unkey_of_optimizer if node.role == "optimizer" and not tape.eager and not parity.strict else _unkey
        node.args, node.kwargs = _template(op, key, args, kwargs, unkey)
        specs = _describe(op, node, args, kwargs)
    node.set_outs(specs)
    node.frames, node.module = source.here()
    if tape.divergence is None:
        is_optimizer = node.role in ("optimizer", "state")  # its hyperparameters are on the stack only now
        tape.divergence = Divergence(parent, node, naming.hyperparameters() if is_optimizer else ())
    parent.edges[key] = node
    tape.nodes += 1
    metrics.timed("LazyTracing", perf_counter_ns() - start)
    clock.work()
    return node


def _template(
    op: Op, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any], unkey: Callable[[Op, str, Any], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments: values on the tape as :class:`Ref`, scalars as :class:`Packed` or plain numbers."""
    n = len(args)
    keys = key[1 : 1 + n]
    return (
        tuple(unkey(op, name, k) for name, k in zip(op.names, keys, strict=False)),
        {name: unkey(op, name, k) for name, k in key[1 + n :]},
    )


def _unkey(op: Op, name: str, key: Any) -> Any:
    """What stands for ``key`` of the argument ``name`` in the template."""
    kind = op.kwarg_kinds[name]
    if type(key) is Const:
        return key.value
    if kind == TENSOR and type(key) is int:
        return Ref(key)
    if kind == TENSORS and key is not None:
        return tuple(Ref(k) if type(k) is int else _number(k) for k in key)
    return key


def _number(key: Any) -> Any:
    return key.value if type(key) is Const else key


#: (operator, argument, what stands for the number elsewhere) -> what stands for it in an optimizer's step
_own: dict[tuple[Op, str, Packed], Packed] = {}


def _unkey_of_optimizer(op: Op, name: str, key: Any) -> Any:
    """The same in an optimizer's step.

    Its numbers are formulas of the step's number: in the first step some are 0 or 1 that no later step has, and some
    equal others (in Adam's, 1 - beta ** 1 is 1 - beta). The graph is that of the later steps: each argument's number is
    an input, and the same one only where the same argument of the same operator has it.
    """
    if type(key) is Const and type(key.value) is float and op.kwarg_kinds[name] in (SCALAR, TENSOR):
        key = ALWAYS_PACKED.get(key.value, key)
    if type(key) is not Packed:
        return _unkey(op, name, key)
    return _own.setdefault((op, name, key), Packed(key.kind, key.index))


#: signature of a call -> its lowering
_calls: dict[Hashable, Call] = {}
_CALLS_LIMIT = 50_000


def _describe(op: Op, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Spec | None]:
    """Specs of the results of the new ``node``, which also gets its lowering.

    Both are cached by the call's signature, so a repeated layer is neither inferred nor traced again.
    """
    sigs: dict[int, Sig] = {}
    others: list[Any] = []
    for template, value in zip(node.args, args, strict=False):
        _collect(template, value, sigs, others)
    for name, template in node.kwargs.items():
        _collect(template, kwargs[name], sigs, others)
    names = {slot: i for i, slot in enumerate(sigs)}
    described = repr((_rename(node.args, names), _rename(node.kwargs, names)))
    like = (op, described, tuple(sigs.values()), torch.get_default_dtype())
    try:
        specs = infer(op, args, kwargs, (like, tuple(others)))
    except NoMeta as error:
        raise Unlowered(str(error)) from error
    if op.lowering is None:
        raise Unlowered(f"{op.name} has no lowering")
    signature = (like, tuple(s and s.sig for s in specs))
    call = _calls.get(signature)
    if call is None:
        if len(_calls) >= _CALLS_LIMIT:
            _calls.clear()
        arrays = [jax.ShapeDtypeStruct(s.shape, JAX_DTYPE[s.dtype]) for s in sigs.values()]
        outs = tuple(None if s is None else Aval(s.sig.shape, s.sig.dtype) for s in specs)
        call = _calls[signature] = Call(op, node.args, node.kwargs, arrays, outs)
    if call.error is not None:
        raise Unlowered(f"{op.name}: {call.error}")
    node.call = call
    return specs


def _collect(template: Any, value: Any, sigs: dict[int, Sig], others: list[Any]) -> None:
    """Collect signatures by slot, in order of first use, and what else shapes depend on: numbers, strides of views."""
    if type(template) is Ref:
        storage = value._storage
        sigs[template.slot] = storage.sig
        if isinstance(storage, View):
            others.append((value.stride(), value.storage_offset()))
    elif type(template) is Packed:
        others.append(value)
    elif type(template) is tuple and isinstance(value, (list, tuple)):
        for t, v in zip(template, value, strict=True):
            _collect(t, v, sigs, others)


def _rename(template: Any, names: dict[Any, int]) -> Any:
    """``template`` with slots and packed scalars numbered in order of first use."""
    if type(template) is Ref:
        return f"%{names[template.slot]}"
    if type(template) is Packed:
        return f"<{template.kind}{names.setdefault(template, len(names))}>"
    if type(template) is tuple:
        return tuple(_rename(t, names) for t in template)
    if type(template) is dict:
        return {k: _rename(v, names) for k, v in template.items()}
    return template
