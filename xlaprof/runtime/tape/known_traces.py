"""Traces that ran: the graph of a new one is compared with theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from xlaprof.runtime.trace import naming
from xlaprof.runtime.trace.trie import Ref

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable, Sequence

    import torch

    from xlaprof.recording.stacks import RawFrame
    from xlaprof.runtime.trace.storage import Storage
    from xlaprof.runtime.trace.trie import Node

    from .graph import Graph

    Models = frozenset[weakref.ref[torch.nn.Module]]  # one may be gone
    Lines = frozenset[tuple[RawFrame, ...]]

#: traces remembered on a tape, and how many of them stay when the trie is pruned: they keep nodes alive
KNOWN, KEPT = 256, 16


class Ran(Protocol):
    """A compiled program."""

    number: int
    scalars: Any  # the packed floats and ints of its last run; None: it has not run


class KnownTrace(NamedTuple):
    """A trace that ended with a set of live values for the first time."""

    trigger: str
    place: tuple[RawFrame, ...]  # the barrier; empty where nobody recorded
    end: Node
    graph: Graph
    key: tuple[Any, ...]  # of its plan, at its end
    made: tuple[tuple[RawFrame, ...], ...]  # lines that made the graph's inputs
    updates: frozenset[int]  # ids of the graph's inputs that an optimizer reads: the parameters it updates
    models: Models  # whose parameters it is given
    uses: Lines  # of the forward pass that compute with these
    parameters: tuple[str, ...]  # the shapes and dtypes of these
    settings: dict[tuple[str, str], dict[str, str]]  # the program's variables, by file and function
    program: Callable[[], Ran | None]  # compiled from its graph; None: forgotten

    def is_on_other_things(self, new: KnownTrace) -> bool:
        """Whether a later trace is no version of this one, which works on other things.

        Steps that update other parameters are those of two models, and so is what different lines compute with other
        models' parameters, unless the models are alike and the same is done with them, if more or less often: one graph
        could serve both. Graphs without an input that one line made are of two tensors.
        """
        both_train, models = self.updates and new.updates, self.models and new.models
        alike = bool(models) and self.parameters == new.parameters and self._computes() == new._computes()
        if both_train and not self.updates & new.updates and not alike:
            return True
        if models and not self.models & new.models and not alike and (both_train or not self.uses & new.uses):
            return True  # whatever the ids: those of a model that is gone come again
        before, now = ({frames for frames in one.made if frames} for one in (self, new))
        return bool(before and now) and before.isdisjoint(now)

    def _computes(self) -> frozenset[tuple[str, tuple[RawFrame, ...]]]:
        """The operations of the program's own, with their lines, each once."""
        return frozenset((node.op.name, node.frames) for node in self.graph.nodes if node.op is not None)


def of_models(graph: Graph, owners: Sequence[Storage]) -> tuple[Models, Lines, tuple[str, ...]]:
    """The models whose parameters are inputs of a graph, the lines that compute with them, and their shapes."""
    known = {slot: one for slot, one in zip(graph.inputs, naming.models(owners), strict=True) if one is not None}
    forward = (node for node in graph.nodes if not node.role)
    uses = (node.frames for node in forward if any(type(a) is Ref and a.slot in known for a in node.args))
    shapes = sorted(sig.text for slot, sig in zip(graph.inputs, graph.sigs, strict=True) if slot in known)
    return frozenset(known.values()), frozenset(uses), tuple(shapes)
