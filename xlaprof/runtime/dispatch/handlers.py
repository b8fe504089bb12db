"""Handlers that record an operation: functional, in place, or a view.

A handler is called as ``handler(args, kwargs)``; :mod:`.routes` chooses the handler of each operator. :func:`unary`,
:func:`binary` and :func:`inplace_binary` are the hot path, :func:`general` and :func:`inplace` take any arguments. All
do the same: key the arguments, follow the edge of the trie, make the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from weakref import ref

import torch

from xlaprof.runtime.tape import randomness, views
from xlaprof.runtime.tape.grow import Unlowered, grow
from xlaprof.runtime.tape.rewind import Rewound, rewind
from xlaprof.runtime.tape.tape import Tape, const
from xlaprof.runtime.trace.ops import BAKED, DROPPED, SCALAR, STATIC, TENSOR, TENSORS, Op
from xlaprof.runtime.trace.storage import NOWHERE, Sig, Storage, View
from xlaprof.runtime.trace.tensor import XLATensor, dress, in_inference_mode, make, make_normal
from xlaprof.runtime.trace.trie import Node
from xlaprof.runtime.transfer import host

from . import fallback
from .types import Args, Handler, Kwargs

H = TypeVar("H", bound=Handler)

#: overload -> the handler written for it alone
SPECIAL: dict[str, Handler] = {}

_strided = torch.strided


def special(*names: str) -> Callable[[H], H]:
    """Decorator: the function is the handler of the overloads ``names``."""

    def keep(handler: H) -> H:
        SPECIAL.update(dict.fromkeys(names, handler))
        return handler

    return keep


def functional(op: Op) -> Handler:
    """The cheapest handler that suits a functional operator."""
    record = general(op)
    required = [a for a in op.func._schema.arguments if not a.has_default_value()]
    if any(a.kwarg_only for a in required):
        return record
    if len(op.func._schema.returns) != 1 or op.random or op.filled or not required or op.kinds[0] is not TENSOR:
        return record
    if len(required) == 1:
        return unary(op, record)
    if len(required) == 2 and len(op.kinds) > 1 and op.kinds[1] in (TENSOR, SCALAR):
        return binary(op, record)
    return record


def unary(op: Op, otherwise: Handler) -> Handler:
    """Hot path of ``op(tensor)``."""

    def record(args: Args, kwargs: Kwargs) -> Any:
        if kwargs or len(args) != 1:
            return otherwise(args, kwargs)
        storage = args[0]._storage
        tape = storage.tape
        tape.lock.acquire()
        try:
            epoch = tape.epoch
            key = (op, storage.slot if storage.epoch == epoch else tape.enter(storage))
            node = tape.node.edges.get(key)
            if node is None:
                node = _new(tape, op, key, args, kwargs)
            tape.node = node
            out = Storage(tape, node.sig, node.slot, epoch, epoch)
            tape.storages.append(out)
        except (Unlowered, Rewound) as error:  # not kept: its traceback holds this frame, and so the user's tensors
            rewound = type(error) is Rewound
        else:
            result = make(XLATensor, node.size, None, None, None, node.dtype, _strided, tape.torch_device)
            result._storage = out
            return result
        finally:
            tape.lock.release()
        return record(args, kwargs) if rewound else fallback.compute(op, args, kwargs)

    return record


def binary(op: Op, otherwise: Handler) -> Handler:
    """Hot path of ``op(tensor, tensor)`` and ``op(tensor, number)``."""

    def record(args: Args, kwargs: Kwargs) -> Any:
        if kwargs or len(args) != 2:
            return otherwise(args, kwargs)
        a, b = args
        kind = type(b)
        if type(a) is not XLATensor or (kind is not XLATensor and kind is not float and kind is not int):
            return otherwise(args, kwargs)
        storage = a._storage
        tape = storage.tape
        tape.lock.acquire()
        try:
            epoch = tape.epoch
            slot = storage.slot if storage.epoch == epoch else tape.enter(storage)
            if kind is XLATensor:
                storage = b._storage
                key: Any = (op, slot, storage.slot if storage.epoch == epoch else tape.enter(storage))
            elif kind is float and b:
                key = (op, slot, tape.float_keys.get(b) or tape.new_float(b))
            else:
                key = (op, slot, tape.scalar(b))
            node = tape.node.edges.get(key)
            if node is None:
                node = _new(tape, op, key, args, kwargs)
            tape.node = node
            out = Storage(tape, node.sig, node.slot, epoch, epoch)
            tape.storages.append(out)
        except (Unlowered, Rewound) as error:  # not kept: its traceback holds this frame, and so the user's tensors
            rewound = type(error) is Rewound
        else:
            result = make(XLATensor, node.size, None, None, None, node.dtype, _strided, tape.torch_device)
            result._storage = out
            return result
        finally:
            tape.lock.release()
        return record(args, kwargs) if rewound else fallback.compute(op, args, kwargs)

    return record


def inplace(op: Op) -> Handler:
    """``op_(tensor, ...)``: the value is computed as by the functional twin, then the storage holds it."""

    def record(args: Args, kwargs: Kwargs) -> Any:
        target = args[0]
        if type(target) is not XLATensor:
            return fallback.write_to_host(op, args, kwargs)
        storage = target._storage
        tape = storage.tape
        args, kwargs = host.adopt(tape, op, args, kwargs)
        tape.lock.acquire()
        try:
            node = step(tape, op, args, kwargs)
            if op.random:
                tape.seeds.append(randomness.draw(tape.index, randomness.generator_of(args, kwargs)))
            tape.write(storage, node.slot)
        except (Unlowered, Rewound) as error:  # not kept: its traceback holds this frame, and so the user's tensors
            rewound = type(error) is Rewound
        else:
            return target
        finally:
            tape.lock.release()
        return record(args, kwargs) if rewound else fallback.compute(op, args, kwargs)

    if len(op.kinds) > 1 and op.kinds[1] in (TENSOR, SCALAR) and not op.random:
        return inplace_binary(op, record)
    return record


def inplace_binary(op: Op, otherwise: Handler) -> Handler:
    """Hot path of ``op_(tensor, tensor)`` and ``op_(tensor, number)``."""

    def record(args: Args, kwargs: Kwargs) -> Any:
        if kwargs or len(args) != 2:
            return otherwise(args, kwargs)
        target, b = args
        kind = type(b)
        if type(target) is not XLATensor or (kind is not XLATensor and kind is not float and kind is not int):
            return otherwise(args, kwargs)
        storage = target._storage
        tape = storage.tape
        tape.lock.acquire()
        try:
            epoch = tape.epoch
            slot = storage.slot if storage.epoch == epoch else tape.enter(storage)
            if kind is XLATensor:
                other = b._storage
                key: Any = (op, slot, other.slot if other.epoch == epoch else tape.enter(other))
            elif kind is float and b:
                key = (op, slot, tape.float_keys.get(b) or tape.new_float(b))
            else:
                key = (op, slot, tape.scalar(b))
            node = tape.node.edges.get(key)
            if node is None:
                node = _new(tape, op, key, args, kwargs)
            tape.node = node
            tape.write(storage, node.slot)
        except (Unlowered, Rewound) as error:  # not kept: its traceback holds this frame, and so the user's tensors
            rewound = type(error) is Rewound
        else:
            return target
        finally:
            tape.lock.release()
        return record(args, kwargs) if rewound else fallback.compute(op, args, kwargs)

    return record


def general(op: Op, output: Callable[[Tape, int, Sig], Storage] = Tape.output) -> Handler:
    """Any functional operator, any arguments; ``output`` makes a result's storage."""

    def record(args: Args, kwargs: Kwargs) -> Any:
        tape = host.tape_of(args, kwargs)
        args, kwargs = host.adopt(tape, op, args, kwargs)
        tape.lock.acquire()
        try:
            node = step(tape, op, args, kwargs)
            if op.random:
                tape.seeds.append(randomness.draw(tape.index, randomness.generator_of(args, kwargs)))
            results = [out and dress(out, output(tape, out.slot, out.sig)) for out in node.returns]
        except (Unlowered, Rewound) as error:  # not kept: its traceback holds this frame, and so the user's tensors
            rewound = type(error) is Rewound
        else:
            if op.returns_list:
                return results
            return results[0] if len(results) == 1 else tuple(results)
        finally:
            tape.lock.release()
        return record(args, kwargs) if rewound else fallback.compute(op, args, kwargs)

    return record


def view(op: Op) -> Handler:
    """A view operator: recorded as any other, but its result stays tied to its base."""
    if op.lowering is None and op.func._can_decompose():  # into other views
        return lambda args, kwargs: op.func.decompose(*args, **kwargs)

    def record(args: Args, kwargs: Kwargs) -> Any:
        storage = args[0]._storage
        tape = storage.tape
        tape.lock.acquire()
        try:
            if kwargs or len(args) != 1:
                node = step(tape, op, args, kwargs)
            else:
                key = (op, storage.slot if storage.epoch == tape.epoch else tape.enter(storage))
                found = tape.node.edges.get(key)
                node = _new(tape, op, key, args, kwargs) if found is None else found
                tape.node = node
            out = node.outs[0]
            shown = derive(tape, storage, node)
            new = make_normal if in_inference_mode() and not args[0].is_inference() else make
            result = new(XLATensor, out.size, out.strides, out.offset, None, out.dtype, _strided, tape.torch_device)
            result._storage = shown
        except (Unlowered, Rewound) as error:
            why, rewound = str(error), type(error) is Rewound
        else:
            return result
        finally:
            tape.lock.release()
        if rewound:
            return record(args, kwargs)
        # A fallback would make a copy, and writes to it would be lost.
        raise NotImplementedError(
            f"{op.aten} cannot be a view of a tensor on {tape.torch_device} ({why}): take it of tensor.cpu()"
        )

    return record


def derive(tape: Tape, storage: Storage, node: Node) -> Storage:
    """The storage that shows ``storage`` through the operator of ``node``: a view, or what ``storage`` is a view of."""
    slot, epoch = node.slot, tape.epoch
    steps: tuple[Node, ...]
    if type(storage) is not View:  # faster than isinstance
        base, steps = storage, (node,)
    elif not views.undoes(node, storage.steps[-1]):
        base, steps = storage.base, (*storage.steps, node)
    else:
        base, steps = storage.base, storage.steps[:-1]
        if not steps:
            return base
        slot, epoch = 0, NOWHERE  # recorded again, by those steps alone, where it is used
    assert node.sig is not None
    shown = View(tape, node.sig, slot, epoch, 0, base=base, steps=steps)
    if base.views is None:
        base.views = []
    base.views.append(ref(shown))
    tape.viewed.append(base)
    return shown


def step(tape: Tape, op: Op, args: Args, kwargs: Kwargs) -> Node:
    """Follow, or grow, the edge of a call; the tape then stands on the node returned."""
    args = filled(op, args, kwargs) if op.filled else args
    key = key_of(tape, op, args, kwargs)
    node = tape.node.edges.get(key)
    if node is None:
        node = _new(tape, op, key, args, kwargs)
    tape.node = node
    return node


def _new(tape: Tape, op: Op, key: Any, args: Args, kwargs: Kwargs) -> Node:
    """A new edge. After a read, what nothing alive needs goes first: raises :class:`Rewound` if something did."""
    if tape.was_read and rewind(tape):
        raise Rewound
    return grow(tape, op, key, args, kwargs)


def filled(op: Op, args: Args, kwargs: Kwargs) -> tuple[Any, ...]:
    """The positional arguments, with those that PyTorch left out because they are the default."""
    return args if kwargs.keys() & set(op.names[: len(op.filled)]) else (*args, *op.filled[len(args) :])


def key_of(tape: Tape, op: Op, args: Args, kwargs: Kwargs) -> tuple[Any, ...]:
    """The edge's key: operator, a key per positional argument, and a pair per keyword argument."""
    keys: list[Any] = [op]
    keys += [_key(tape, kind, value) for kind, value in zip(op.kinds, args, strict=False)]
    if kwargs:
        kinds = op.kwarg_kinds
        keys += [(name, _key(tape, kinds[name], kwargs[name])) for name in sorted(kwargs) if kinds[name] is not DROPPED]
    return tuple(keys)


def _key(tape: Tape, kind: str, value: Any) -> Any:
    if value is None or kind is DROPPED:
        return None
    if kind is TENSOR:
        if type(value) is XLATensor:
            storage = value._storage
            return storage.slot if storage.epoch == tape.epoch else tape.enter(storage)
        return tape.scalar(value)
    if kind is SCALAR:
        return tape.scalar(value)
    if kind is BAKED:
        return const(value)
    if kind is TENSORS:
        return tuple(_key(tape, TENSOR, v) for v in value)
    assert kind is STATIC
    return _frozen(value)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(v) for v in value) if isinstance(value, (list, tuple)) else value
