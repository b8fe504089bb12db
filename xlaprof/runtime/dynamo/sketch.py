"""An FX graph laid out on an abstract tape: its operations, what it writes to, what it returns.

The graph is interpreted once, over stand-ins. Each node is recorded as in lazy mode (handlers, decompositions,
functionalized views, writes in place), so it becomes the same operations and finds the same program. Nodes that cannot
be part of a program show in the same pass: those that need values (no lowering: they run on the CPU), and those on host
tensors.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple, cast

import torch
from torch import fx
from torch._ops import HigherOrderOperator
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only

from xlaprof.recording import stacks
from xlaprof.recording.stacks import RawFrame
from xlaprof.runtime.execution.failures import NoValue
from xlaprof.runtime.tape import randomness, tapes
from xlaprof.runtime.tape.graph import Graph, extract
from xlaprof.runtime.tape.tape import Tape
from xlaprof.runtime.trace import source
from xlaprof.runtime.trace.storage import NOWHERE, Storage, sig
from xlaprof.runtime.trace.tensor import XLATensor, handle

#: kinds of outputs: an argument itself, another handle on an argument's value, an output of the program, a constant
SELF, SAME, COMPUTED, CONSTANT = "self", "same", "computed", "constant"


class Output(NamedTuple):
    """The source of one leaf of the result: ``at`` is an index of the inputs or outputs, or the constant itself."""

    kind: str
    at: Any


class Layout(NamedTuple):
    """An FX graph as a graph of the runtime."""

    graph: Graph
    tape: Tape  # the abstract one
    sources: tuple[int, ...]  # each graph input's place among the arguments, followed by ``captured``
    captured: tuple[torch.Tensor, ...]  # tensors that are not arguments: a module's own, constants
    uploads: tuple[int, ...]  # arguments that come from the host, by place
    writes: tuple[tuple[int, Output], ...]  # places that are overwritten, and with which output
    donors: frozenset[int]  # places that the graph itself marks for donation
    kept: frozenset[int]  # inputs of the graph whose old value is returned: never donated
    outputs: tuple[Output, ...]
    spec: Any  # pytree of the result
    floats: tuple[float, ...]
    ints: tuple[int, ...]
    float_args: tuple[tuple[int, int], ...]  # (index in ``floats``, place) of floats that are arguments


class Split(Exception):
    """The graph has nodes that cannot be part of a program: ``apart``."""

    def __init__(self, apart: frozenset[fx.Node]) -> None:
        super().__init__(", ".join(sorted(node.name for node in apart)))
        self.apart = apart


class Sketch(Tape):
    """An abstract tape: no values, on the device of another tape."""

    abstract = True

    def __init__(self, tape: Tape) -> None:
        super().__init__(tape.index, tape.device)
        self.donors: set[int] = set()  # ids of storages marked for donation


#: a value the interpretation does not have
_UNKNOWN = object()


def lay_out(module: fx.GraphModule, args: list[Any], sketch: Sketch) -> Layout:
    """The layout of ``module`` called with ``args``: tensors, of which only dtype and shape matter, and numbers.

    Raises :class:`Split` where it cannot be one program.
    """
    sketch.reset()
    sketch.donors.clear()
    survey = _Survey(module, args, sketch)
    state = randomness.get_rng_state(sketch.index)
    try:
        with tapes.sketching(sketch), torch.no_grad(), torch.random.fork_rng([]), survey.module_stand_ins():
            result = survey.run(*survey.stand_ins)
    finally:
        randomness.set_rng_state(state, sketch.index)
    if survey.apart:
        raise Split(frozenset(survey.apart))
    return survey.finish(result)


class _Survey(fx.Interpreter):
    """The interpretation."""

    def __init__(self, module: fx.GraphModule, args: list[Any], sketch: Sketch) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.sketch = sketch
        self.args_given = args
        self.apart: set[fx.Node] = set()
        self.captured: list[torch.Tensor] = []
        self.places: dict[int, int] = {}  # id of a stand-in's storage -> its place
        self.shown: dict[int, int] = {}  # id of a stand-in -> its place
        self.by_storage: dict[int, torch.Tensor] = {}  # id of a real storage -> its stand-in
        self.live: set[int] = set()  # ids of host tensors that differ at every call
        self._held: list[tuple[Storage | None, torch.Tensor]] = []  # keeps stand-ins and others alive, for their ids
        self.floats: dict[float, int] = {}  # made-up numbers -> places of the arguments they stand for
        kinds = _upload_kinds(module)
        on_host = [i for i in kinds if _is_host(args[i])]
        self.numbers = frozenset(
            i for i in on_host if kinds[i] == "number" and args[i].ndim == 0 and args[i].dtype is torch.float64
        )
        self.uploads = tuple(i for i in on_host if i not in self.numbers)
        self.stand_ins = [self._stand_in(i, arg) for i, arg in enumerate(args)]

    def _stand_in(self, place: int, arg: Any) -> Any:
        if not isinstance(arg, torch.Tensor):
            return arg
        if place in self.numbers:
            stands_for = math.pi + len(self.floats)
            self.floats[stands_for] = place
            return stands_for
        if type(arg) is XLATensor or place in self.uploads:
            return self._new(place, arg)
        clone = arg.detach().clone()
        self._mark_live(clone)
        return clone

    def _new(self, place: int, tensor: torch.Tensor) -> XLATensor:
        storage = Storage(self.sketch, sig(tuple(tensor.shape), tensor.dtype), 0, NOWHERE, 0, object())
        made = handle(storage)
        self.places[id(storage)] = self.shown[id(made)] = place
        self._held.append((storage, made))
        return made

    def capture(self, tensor: torch.Tensor) -> torch.Tensor:
        """A stand-in for a tensor that the module holds."""
        if type(tensor) is not XLATensor:
            return tensor
        storage = tensor._storage
        known = self.by_storage.get(id(storage))
        if known is None:
            known = self.by_storage[id(storage)] = self._new(len(self.args_given) + len(self.captured), tensor)
            self.captured.append(tensor)
        return known

    def module_stand_ins(self) -> Any:
        """Stand-ins in place of the module's parameters and buffers, which submodules read."""
        assert isinstance(self.module, torch.nn.Module)
        named = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        stand_ins = {name: self.capture(tensor) for name, tensor in named.items() if type(tensor) is XLATensor}
        return torch.nn.utils.stateless._reparametrize_module(self.module, stand_ins, tie_weights=True)

    # -- nodes ----------------------------------------------------------------------------------------

    def run_node(self, n: fx.Node) -> Any:
        if n.op in ("placeholder", "output"):
            return super().run_node(n)
        if n.op == "get_attr":
            value = self.fetch_attr(str(n.target))
            is_stand_in = type(value) is XLATensor and value._storage.tape is self.sketch
            return self.capture(value) if isinstance(value, torch.Tensor) and not is_stand_in else value
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if n.target is _CAST and type(args[0]) is float:  # a number stays one, as in any other operation
            return args[0]
        leaves = tree_leaves((args, kwargs))
        if any(leaf is _UNKNOWN for leaf in leaves):
            self.apart.add(n)
            return _UNKNOWN
        ours = any(type(leaf) is XLATensor for leaf in leaves)
        if ours and isinstance(n.target, HigherOrderOperator) and XLATensor in n.target.python_key_table:
            self.apart.add(n)  # values decide which of its functions runs, and how often
            return self._like(n, args, kwargs)
        live = any(id(leaf) in self.live for leaf in leaves) or (_is_random(n) and not ours)
        goes_to_xla = any(isinstance(leaf, torch.device) and leaf.type == "xla" for leaf in leaves)
        if live and (ours or goes_to_xla):  # a host value that is computed at each call
            if not _is_random(n) or ours:
                self.apart.add(n)
                return self._like(n, args, kwargs)
            live = False
        try:
            with source.at(*place_of(n)):
                result = super().run_node(n)
        except NoValue:
            self.apart.add(n)
            return self._like(n, args, kwargs)
        if live:
            self.apart.add(n)
            self._mark_live(result)
        return result

    def _mark_live(self, result: Any) -> None:
        """Remember that the host tensors in ``result`` differ at every call."""
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and type(leaf) is not XLATensor:
                self.live.add(id(leaf))
                self._held.append((None, leaf))

    def _like(self, n: fx.Node, args: Any, kwargs: Any) -> Any:
        """A placeholder for the result of ``n``, which is not computed here."""
        example = n.meta.get("val", n.meta.get("example_value"))
        try:
            if example is None or any(_symbolic(t) for t in tree_leaves(example)):
                zeros = tree_map_only(XLATensor, lambda t: torch.zeros(t.shape, dtype=t.dtype), (args, kwargs))
                zeros = tree_map_only(torch.device, lambda _: torch.device("cpu"), zeros)
                example = getattr(self, n.op)(n.target, *zeros)
                example = tree_map_only(torch.Tensor, lambda t: t.to("meta"), example)
            result = tree_map_only(torch.Tensor, self._blank, example)
            self._mark_live(result)
            return result
        except Exception:  # the operator refuses zeros: nodes that depend on it run apart, too
            return _UNKNOWN

    def _blank(self, example: torch.Tensor) -> torch.Tensor:
        if example.device.type == "cpu":
            return torch.zeros(tuple(example.shape), dtype=example.dtype)
        return handle(Storage(self.sketch, sig(tuple(example.shape), example.dtype), 0, NOWHERE, 0, object()))

    # -- the layout -----------------------------------------------------------------------------------

    def finish(self, result: Any) -> Layout:
        """The layout, as a graph."""
        sketch = self.sketch
        leaves, spec = tree_flatten(result)
        stand_ins = [(storage, made) for storage, made in self._held if storage is not None]
        if any(cast(XLATensor, made)._storage is not storage for storage, made in stand_ins):
            raise NotImplementedError("an input is resized, or moved to another storage")
        computed: list[int] = []

        def of(slot: int) -> Output:
            position = sketch.input_at.get(slot)
            if position is not None:
                return Output(SAME, self._place_at(position))
            if slot not in computed:
                computed.append(slot)
            return Output(COMPUTED, slot)

        with sketch.lock:
            writes = [
                (self.places[id(storage)], of(storage.slot))
                for storage, _ in stand_ins
                if storage.epoch == sketch.epoch and self._is_written(storage)
            ]
            outputs = [
                Output(CONSTANT, leaf)
                if type(leaf) is not XLATensor
                else Output(SELF, self.shown[id(leaf)])
                if id(leaf) in self.shown
                else of(sketch.slot_of(leaf._storage))
                for leaf in leaves
            ]
        slots = tuple(sorted(computed))
        graph = extract(sketch.node, slots, sketch.input_at)
        number = {slot: i for i, slot in enumerate(slots)}
        sources = tuple(self._place_at(position) for position in graph.positions)
        kept = {out.at for out in (*outputs, *(out for _, out in writes)) if out.kind == SAME}

        def numbered(out: Output) -> Output:
            return Output(COMPUTED, number[out.at]) if out.kind == COMPUTED else out

        return Layout(
            graph=graph,
            tape=sketch,
            sources=sources,
            captured=tuple(self.captured),
            uploads=self.uploads,
            writes=tuple((place, numbered(out)) for place, out in writes),
            donors=frozenset(self.places[id(storage)] for storage, _ in stand_ins if id(storage) in sketch.donors),
            kept=frozenset(i for i, place in enumerate(sources) if place in kept),
            outputs=tuple(numbered(out) for out in outputs),
            spec=spec,
            floats=tuple(sketch.floats[p.index] for p in graph.floats),
            ints=tuple(sketch.ints[p.index] for p in graph.ints),
            float_args=tuple(
                (i, self.floats[value])
                for i, p in enumerate(graph.floats)
                if (value := sketch.floats[p.index]) in self.floats
            ),
        )

    def _is_written(self, storage: Storage) -> bool:
        position = self.sketch.input_at.get(storage.slot)
        return position is None or self.sketch.owners[position] is not storage

    def _place_at(self, position: int) -> int:
        """The place of an input; a tensor that was uploaded during the interpretation is captured."""
        owner = self.sketch.owners[position]
        place = self.places.get(id(owner))
        if place is None:
            kept = Storage(tapes.tape(self.sketch.index), owner.sig, 0, NOWHERE, 0, self.sketch.arrays[position])
            place = self.places[id(owner)] = len(self.args_given) + len(self.captured)
            self.captured.append(handle(kept))
        return place


def _is_host(arg: Any) -> bool:
    return isinstance(arg, torch.Tensor) and type(arg) is not XLATensor and arg.device.type == "cpu"


def _symbolic(leaf: Any) -> bool:
    return isinstance(leaf, torch.SymInt) or (
        isinstance(leaf, torch.Tensor) and any(isinstance(n, torch.SymInt) for n in leaf.shape)
    )


def _is_random(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


_CAST = torch.ops.prims.convert_element_type.default


def _upload_kinds(module: fx.GraphModule) -> dict[int, str]:
    """Arguments that, if on the host, are only used on the device: place -> as a ``"tensor"`` or as a ``"number"``.

    A Python float that changes is a 0-dim tensor in Dynamo's graphs, which is cast and combined with tensors.
    """
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    kinds = {i: _upload_kind(node) for i, node in enumerate(placeholders)}
    return {i: kind for i, kind in kinds.items() if kind}


def _upload_kind(node: fx.Node) -> str:
    """How the users of ``node``, a host tensor, bring it to the device; empty where one does not."""
    kinds = {_kind_of_use(user, node) for user in node.users}
    return "" if not kinds or "" in kinds else "number" if kinds == {"number"} else "tensor"


def _kind_of_use(user: fx.Node, node: fx.Node) -> str:
    if user.op != "call_function" or not isinstance(user.target, torch._ops.OpOverload):
        return ""
    if user.target is _CAST and user.args[1].is_floating_point:  # type: ignore[union-attr]
        return _upload_kind(user)
    if user.target is torch.ops.aten._to_copy.default and user.kwargs.get("device") is not None:
        return "tensor" if torch.device(user.kwargs["device"]).type == "xla" else ""  # type: ignore[arg-type]
    writes = any(a.alias_info is not None and a.alias_info.is_write for a in user.target._schema.arguments)
    others = [n.meta.get("val") for n in user.all_input_nodes if n is not node]
    if writes or not any(isinstance(value, torch.Tensor) and value.device.type == "xla" for value in others):
        return ""
    return "number" if torch.Tag.pointwise in user.target.tags and user.args[0] is not node else "tensor"


_FRAME = re.compile(r'File "(.+?)", line (\d+), in (.+)')


def place_of(node: fx.Node) -> tuple[tuple[RawFrame, ...], str]:
    """The user's frames, innermost first, and the ``nn.Module`` path that an FX node comes from."""
    text = node.meta.get("stack_trace") or node.meta.get("fwd_stack_trace") or ""
    frames = [RawFrame(file, int(line), func) for file, line, func in _FRAME.findall(text)]
    stack = stacks.split(reversed(frames))
    known = bool(stack) and not stacks.is_library(stack[0].file, None)
    modules = [kind for _, kind in (node.meta.get("nn_module_stack") or {}).values()]
    names = [kind.__name__ if isinstance(kind, type) else str(kind).rpartition(".")[2] for kind in modules]
    return stack if known else source.here()[0], "/".join(names)
