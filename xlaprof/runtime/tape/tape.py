"""The tape: the trace since the last barrier, as a path in the trie.

On a known path nothing is built: an operation is one dict lookup, and the node has its result's shape. The tape itself
holds the data of this trace: the arrays of its inputs, its scalars, and the storages with new values.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
from collections import Counter, deque
from sys import getrefcount
from typing import TYPE_CHECKING, Any

import torch

from xlaprof.runtime import parity
from xlaprof.runtime.trace.errors import raise_failed
from xlaprof.runtime.trace.storage import NOWHERE, Constant, Copy, Failed, Sig, Storage, View, sig
from xlaprof.runtime.trace.trie import Const, Divergence, Node, Packed, Ref, Spec, prune

from . import op_counters
from .grow import ALWAYS_PACKED, DEFAULT, EMPTY, INPUT, grow, piece
from .known_traces import KEPT, KNOWN, KnownTrace
from .views import scatter_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import jax


#: epochs are numbered over all tapes, so a storage's epoch also says which tape it is on
_epochs = itertools.count(1)

#: limit of nodes in a trie (about 1 KB each); past it the least recently used quarter is forgotten
MAX_NODES = int(os.environ.get("XLAPROF_TRIE_NODES", "250000"))

#: with more operations on a tape, reads look whether most of them are dead
SHED = 500

#: scalars that are constants of the graph, as in PyTorch/XLA; others are inputs, so that they may change
SPECIAL = (0, 1, -1) if os.environ.get("XLA_NO_SPECIAL_SCALARS", "0") in ("", "0", "false") else ()
SPECIAL_FLOATS = {float(v): Const(float(v)) for v in SPECIAL}
SPECIAL_INTS = {v: Const(v) for v in SPECIAL}
_NOTHING = sig((0,), torch.bool)
_NEGATIVE_ZERO = Const(-0.0)
_consts: dict[tuple[type, Any], Const] = {}

_FLOAT = [Packed("f", i) for i in range(256)]
_INT = [Packed("i", i) for i in range(256)]


def const(value: Any) -> Const:
    """The one :class:`Const` of a number."""
    found = _consts.get((type(value), value))
    if found is None:
        found = _consts.setdefault((type(value), value), Const(value))
    return found


class Tape:
    """One per device. Its lock guards all of it: backward passes run on autograd's thread."""

    #: is it a tape without values, for Dynamo's graphs? (:mod:`xlaprof.runtime.dynamo.sketch`)
    abstract = False

    # Every operation reads several. Without slots, an instance of more than 30 attributes is a dict that is searched.
    __slots__ = (
        "_resting", "arrays", "by_array", "counted", "default", "device", "divergence", "eager", "epoch", "float_keys",
        "floats", "given", "index", "input_at", "int_keys", "ints", "known", "least_alive", "let_go", "lock", "node",
        "nodes", "owners", "partition", "pieces", "root", "seeded", "seeds", "shed_at", "sizes", "storages",
        "torch_device", "viewed", "was_read",
    )  # fmt: skip

    def __init__(self, index: int, device: jax.Device) -> None:
        self.index = index
        self.device = device
        self.torch_device = torch.device("xla", index)
        self.lock = threading.Lock()  # not reentrant: nothing recorded may record
        #: call this to make the thread of the last backward pass release its last values; None: it has
        self.let_go: Callable[[], None] | None = None
        #: layout of values over the devices of a virtual device: a ``Partition`` of :mod:`xlaprof.runtime.spmd`
        self.partition: Any = None
        self.root, self.nodes = Node(None, None, None), 1
        self.known: deque[KnownTrace] = deque(maxlen=KNOWN)  # traces that made plans, to compare with
        self.eager = False
        self.default = torch.get_default_dtype()  # dtype of Python's floats, not part of an edge's key
        self._resting: dict[tuple[bool, torch.dtype], tuple[Node, int]] = {}  # tries of other modes, other defaults
        self.node = self.root
        self.counted = 0
        self.seeded = 0  # the last epoch in which a program read seeds
        self.reset()

    def begin(self, held: int = 0) -> None:
        """Begin a new trace, at a barrier, and forget dead views. ``held`` of the recorded tensors live on."""
        self.trim_views()
        self.reset(held)
        self.trim_trie()

    def reset(self, held: int = 0) -> None:
        """Begin a new trace at the root. Recorded values are gone unless they have an array."""
        if self.node is not self.root:
            op_counters.ended(self.node, self.counted, held)
        if torch.get_default_dtype() is not self.default:
            self._change(self.eager, torch.get_default_dtype())
        self.counted = 0  # operations of the trace already counted (:mod:`.op_counters`)
        self.epoch = next(_epochs)
        self.node = self.root
        self.arrays: list[Any] = []  # inputs, in order of first use
        self.owners: list[Storage] = []  # and the storages they came from
        self.input_at: dict[int, int] = {}  # slot of an input -> index in these two
        self.given: list[int] = []  # those of ``input_at`` that were recorded as constants, the last ones
        self.storages: list[Storage] = []  # storages that were given a value: the possible outputs
        self.pieces: list[Any] = []  # and weak references to views that are: a view holds its base
        self.floats: list[float] = [*ALWAYS_PACKED]
        self.ints: list[int] = []
        self.seeds: list[tuple[int, int]] = []  # (seed, offset) of each random operation
        self.float_keys: dict[float, Packed | Const] = {**SPECIAL_FLOATS}
        self.int_keys: dict[int, Packed | Const] = {**SPECIAL_INTS}
        self.by_array: dict[int, int] = {}  # id of an input's array -> its slot
        self.viewed: list[Storage] = []  # storages that got a view in this epoch
        self.divergence: Divergence | None = None
        #: (kind, slot) -> sizes that values decide, as read (:mod:`~xlaprof.runtime.dispatch.dynamic_size_ops`)
        self.sizes: dict[tuple[str, int], int] = {}
        #: has a value been read that stays pending? What only it needed may be dead by now (:mod:`.rewind`)
        self.was_read = False
        #: operations; the fewest values that a read has left alive since there are more (:func:`.reads.shed`)
        self.shed_at, self.least_alive = SHED, 0

    def turn_back(self, end: Node, live: list[Storage]) -> tuple[int, int]:
        """Begin a new trace that consists of the operations of this one until ``end``, and has its inputs until there.

        ``live`` is what lives on. Returns the epoch until now, and the first slot that is free again: of these,
        :mod:`.rewind` tells those that live.
        """
        op_counters.ended(self.node, self.counted, end)
        before, slots = self.epoch, end.next_slot
        self.counted, self.epoch, self.node = end.depth, next(_epochs), end
        kept = sum(slot < slots for slot in self.input_at)
        for owner, slot in zip(self.owners[:kept], self.input_at, strict=False):
            if owner.epoch == before and owner.slot == slot:
                owner.epoch = self.epoch
        del self.arrays[kept:], self.owners[kept:]
        self.input_at = {slot: i for slot, i in self.input_at.items() if slot < slots}
        self.by_array = {key: slot for key, slot in self.by_array.items() if slot < slots}
        self.sizes = {key: size for key, size in self.sizes.items() if key[1] < slots}
        self.storages = [storage for storage in live if storage.listed == before]
        floats, ints = end.scalars()
        floats = max(floats, len(ALWAYS_PACKED))
        del self.floats[floats:], self.ints[ints:]
        self.float_keys = {n: key for n, key in self.float_keys.items() if isinstance(key, Const) or key.index < floats}
        self.int_keys = {n: key for n, key in self.int_keys.items() if isinstance(key, Const) or key.index < ints}
        del self.seeds[end.next_seed + int(end.op is not None and end.op.random) :]
        if self.seeded == before:
            self.seeded = self.epoch
        if self.divergence is not None and self.divergence.node.depth > end.depth:
            self.divergence = None
        return before, slots

    def turn(self, eager: bool) -> None:
        """Begin a new trace on the trie of eager mode, whose traces are one operation long, or of lazy mode."""
        if eager is not self.eager:
            fresh = self.node is self.root
            self._change(eager, self.default)
            if not fresh:
                self.reset()

    def mark_default(self, default: torch.dtype) -> None:
        """Record under another default dtype from now on: a mark on the trace, or a trace on another trie."""
        if self.node is self.root:
            self.reset()
        else:
            self.pseudo(DEFAULT, default, (), {}, Spec(_NOTHING))

    def _change(self, eager: bool, default: torch.dtype) -> None:
        self._resting[self.eager, self.default] = (self.root, self.nodes)
        self.eager, self.default = eager, default
        self.root, self.nodes = self._resting.pop((eager, default), (Node(None, None, None), 1))
        self.node = self.root

    def forget(self) -> None:
        """Forget all earlier traces, as if the process had just begun."""
        self.root.edges.clear()
        self.root.plans.clear()
        self.nodes = 1
        self._resting.clear()
        self.known.clear()

    # -- reading values -------------------------------------------------------------------------------

    def enter(self, storage: Storage) -> int:
        """Give a storage without a slot on this trace one: as an input, a view derived again, or new memory."""
        if isinstance(storage, View) and storage.array is None:
            return self._derive(storage)
        other: Tape = storage.tape
        if other is not self:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"xla:{self.index} and xla:{other.index}!"
            )
        array = storage.array if self.partition is None else self.partition.on_devices(storage)
        if array is None:
            return self._uninitialized(storage)
        if type(array) is Failed:
            raise_failed(array)
        # A copy is an input beside its original, also while both are one array: the next step writes to one of them.
        slot = self.by_array.get(id(array)) if parity.strict else None
        if slot is None:
            form = storage.sig if self.partition is None else self.partition.form(array, storage.sig)
            if isinstance(storage, View):
                form = piece(form, storage.steps[-1].outs[0])
            slot = self.pseudo(INPUT, form, (), {}, Spec(storage.sig))
            self.by_array[id(array)] = slot
            self.input_at[slot] = len(self.arrays)
            self.arrays.append(array)
            self.owners.append(storage)
        storage.slot = slot
        storage.epoch = self.epoch
        return slot

    def slot_of(self, storage: Storage) -> int:
        """Slot of the storage's current value on this trace."""
        return storage.slot if storage.epoch == self.epoch else self.enter(storage)

    def _derive(self, view: View) -> int:
        slot = self.slot_of(view.base)
        for step in view.steps:
            slot = self.follow(step, slot)
        view.slot = slot
        view.epoch = self.epoch
        return slot

    def give(self, slot: int, array: Any, owner: Storage) -> None:
        """Have graphs take ``array`` for the value at ``slot``, which was recorded as an operation."""
        self.given.append(slot)
        self.input_at[slot] = len(self.arrays)
        self.arrays.append(array)
        self.owners.append(owner)

    def take_back(self) -> None:
        """Undo :meth:`give`."""
        while self.given:
            del self.input_at[self.given.pop()]
            self.arrays.pop()
            self.owners.pop()

    def follow(self, step: Node, slot: int) -> int:
        """Record the view operator of ``step`` again, on the value at ``slot``, with the line that made the view."""
        key = (step.op, slot, *step.key[2:])
        node = self.node.edges.get(key)
        if node is None:
            assert step.op is not None  # only the root's is
            out = step.outs[0]
            args = (Ref(slot), *step.args[1:])
            node = grow(self, step.op, key, args, step.kwargs, Spec(out.sig, out.strides, out.offset))
            node.frames, node.module = step.frames or node.frames, step.module or node.module
        self.node = node
        return node.slot

    def pseudo(self, op: Any, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any], spec: Spec) -> int:
        """Record an operation of the tape's own; return the slot of its result."""
        node = self.node.edges.get(key)
        if node is None:
            node = grow(self, op, key, args, kwargs, spec)
        self.node = node
        return node.slot

    def _uninitialized(self, storage: Storage) -> int:
        # Any value will do for memory that was never written; zeros are repeatable.
        storage.slot = self.pseudo(EMPTY, (EMPTY, storage.sig), (), {}, Spec(storage.sig))
        storage.epoch = storage.listed = self.epoch
        self.storages.append(storage)
        return storage.slot

    # -- scalars --------------------------------------------------------------------------------------

    def new_float(self, value: float) -> Packed:
        """Key of a float that is new on this trace: the next index of the packed floats."""
        index = len(self.floats)
        if index >= len(_FLOAT):
            _FLOAT.append(Packed("f", index))
        key = self.float_keys[value] = _FLOAT[index]
        self.floats.append(value)
        return key

    def new_int(self, value: int) -> Packed | Const:
        """Key of an int that is new on this trace."""
        if not -(2**63) <= value < 2**63:
            return const(value)  # does not fit the packed array
        index = len(self.ints)
        if index >= len(_INT):
            _INT.append(Packed("i", index))
        key = self.int_keys[value] = _INT[index]
        self.ints.append(value)
        return key

    def scalar(self, value: Any) -> Packed | Const:
        """Key of a scalar: :class:`Packed`, or :class:`Const` if it is part of the graph."""
        kind = type(value)
        if kind is float:
            if value == 0.0 and math.copysign(1.0, value) < 0:  # equal to 0.0, but another constant
                return _NEGATIVE_ZERO
            key = self.float_keys.get(value)
            return self.new_float(value) if key is None else key
        if kind is int:
            key = self.int_keys.get(value)
            return self.new_int(value) if key is None else key
        return const(value)

    def number(self, packed: Packed) -> Any:
        """The value of a packed scalar."""
        return self.floats[packed.index] if packed.kind == "f" else self.ints[packed.index]

    # -- writing values -------------------------------------------------------------------------------

    def write(self, storage: Storage, slot: int) -> None:
        """Give ``storage`` the value at ``slot``, which has its shape."""
        epoch = self.epoch
        if type(storage) is View:  # faster than isinstance, and View has no subclasses
            written, exact = self._write_through(storage, slot)
            self.write(storage.base, written)
            if not exact:
                return  # stale, like all views of the base
        elif storage.listed != epoch:
            storage.listed = epoch
            self.storages.append(storage)
        if storage.views is not None:
            self.invalidate(storage)
        storage.slot = slot
        storage.epoch = epoch

    def _write_through(self, view: View, slot: int) -> tuple[int, bool]:
        """Record the write of the value at ``slot`` through ``view``.

        Returns the slot of its base's new value, and whether the view now shows the value written. A view that shows
        elements of its base several times shows the last value written to each.
        """
        bases = [self.slot_of(view.base)]
        sigs = [view.base.sig]
        for step in view.steps[:-1]:
            bases.append(self.follow(step, bases[-1]))
            assert step.sig is not None
            sigs.append(step.sig)
        exact = True
        for step, base, form in zip(reversed(view.steps), reversed(bases), reversed(sigs), strict=True):
            op = scatter_of(step, form)
            args = (Ref(base), Ref(slot), *step.args[1:])
            slot = self.pseudo(op, (op, base, slot), args, step.kwargs, Spec(form))
            exact = exact and op.exact
        return slot, exact

    def invalidate(self, storage: Storage) -> None:
        """Have the views of ``storage``, whose value has changed, derived again on next use."""
        alive = []  # a loop may make one view per turn
        for ref in storage.views or ():
            view = ref()
            if view is not None:
                view.epoch, view.array = NOWHERE, None
                alive.append(ref)
        storage.views = alive or None

    def output(self, slot: int, sig: Sig) -> Storage:
        """A new storage whose value is at ``slot``."""
        storage = Storage(self, sig, slot, self.epoch, self.epoch)
        self.storages.append(storage)
        return storage

    def constant(self, slot: int, sig: Sig) -> Storage:
        """The same for a value that is one number in all elements."""
        storage = Constant(self, sig, slot, self.epoch, self.epoch, made=(self.epoch, slot))
        self.storages.append(storage)
        return storage

    def live(self) -> list[Storage]:
        """Storages that got a value on this trace and are still referenced."""
        self.trim_views()  # its list would keep viewed storages alive
        epoch = self.epoch
        # 3: the list, the loop variable, getrefcount's argument
        found = [storage for storage in self.storages if storage.epoch == epoch and getrefcount(storage) > 3]
        if any(storage.array is not None for storage in found):  # overwritten: it may have been an input before
            owned = Counter(map(id, self.owners))
            found = [s for s in found if s.array is None or getrefcount(s) > 4 + owned[id(s)]]  # 4: and ``found``
        return found + [view for ref in self.pieces if (view := ref()) is not None and view.epoch == epoch]

    def part(self, storages: list[Storage]) -> None:
        """Have the barrier make those copies among ``storages``, which are live, whose original is kept as well."""
        seen: set[int] = set()
        for storage in storages:
            slot = storage.slot
            if isinstance(storage, Copy) and (slot in seen or slot in self.input_at):
                if storage.of == (self.epoch, slot):
                    storage.slot = storage.own
            else:
                seen.add(slot)

    def trim_views(self) -> None:
        """Forget dead views."""
        for storage in self.viewed:
            if storage.views is not None:
                alive = [ref for ref in storage.views if ref() is not None]
                storage.views = alive or None
        self.viewed.clear()

    def trim_trie(self) -> None:
        """Keep the trie within :data:`MAX_NODES`. The trace must be at the root."""
        if self.nodes > MAX_NODES:
            self.nodes = prune(self.root, MAX_NODES * 3 // 4)
            latest = sorted(self.known, key=lambda trace: trace.end.last_used)[-KEPT:]
            self.known = deque(latest, KNOWN)
