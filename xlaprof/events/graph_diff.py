"""How a new graph differs from an earlier one, as a :class:`~xlaprof.events.Compile` event holds it.

:class:`GraphDiff` is what the embedded runtime records: facts only. :class:`Change` is what the analysis concludes from
it: the one difference that the others follow from.
"""

import msgspec

from xlaprof.bounds import Count, Id, List, String, Table


class Operation(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A recorded operation of a graph."""

    name: String  # "aten::add"; "barrier" where the graph ends in its place
    stack: Id = 0  # Stack id: the line that recorded it
    role: String = ""  # the part of training that recorded it, see :attr:`Change.role`
    random: bool = False  # it draws random numbers
    own: bool = False  # the runtime recorded it, the program did not call it
    #: of a read's graph: it takes out a number, and what the host reads is that, or computed of such numbers alone
    element: bool = False


class Loop(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A loop of the program that lies within a graph, and how often it was recorded there."""

    head: Id  # Stack id: its first line
    old: Count  # iterations in the earlier graph, and
    new: Count  # in the new one
    choice: Id = 0  # Stack id: the condition in it that selects iterations; 0: all do the same
    agreeing: Count = 0  # of the lines that were recorded more or less often: those in the ratio of ``old`` to ``new``
    differing: Count = 0  # and all
    distinct: Count = 0  # different whole numbers that one operation of it is given over the iterations of one graph


class Block(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Consecutive operations that only one of two graphs has. The lists hold the first few."""

    old: List[Operation] = []
    new: List[Operation] = []
    removed: Count = 0  # how many there were before, and
    added: Count = 0  # there are now
    roles: Table[String, Count] = {}  # role -> operations of either graph that have it
    #: whether some operations of the earlier graph draw random numbers, and some of the new one
    random: tuple[bool, bool] = (False, False)
    stack: Id = 0  # Stack id: the outermost call that these operations do not share with their neighbours
    condition: Id = 0  # Stack id: the if, for or while around that line which does not hold for the neighbours
    name: String = ""  # a variable on that line that had another value, where no condition is known
    values: tuple[String, String] = ("", "")  # of it, before and now
    barrier: Id = 0  # Stack id: another barrier whose graph has these operations: of removed ones the latest to run
    barrier_condition: Id = 0  # Stack id: the if, for or while around that barrier, not around this one


class Difference(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One thing in which two graphs differ."""

    #: "shape" | "dtype" | "sharding" (of an input) | "inputs" (a value is computed in one graph and an input of the
    #: other, or a list has another length) | "aliasing" (which values are the same tensor) | "scalar" | "argument" |
    #: "size" (of a result whose shape depends on values) | "operation" | "outputs" (which values live on) | "evicted"
    kind: String
    old: String = ""  # the values as text: "f32[8,128]", "4", "[0, 1]", "aten::mm"
    new: String = ""
    argument: String = ""  # of the operation
    expected: Operation | None = None  # the operation of the earlier graph, and
    came: Operation | None = None  # of the new one
    seen: bool = True  # the line had recorded this operation before
    #: the program's name of what differs: a parameter's path, a variable with that number, what holds the output
    name: String = ""
    made: Id = 0  # Stack id: the line that made the input, or brought it to the device
    moved: bool = False  # it was brought from the host there
    passed: bool = False  # both numbers were inputs of their program, not constants of the graph
    block: Block | None = None  # of kind "operation"
    loop: Loop | None = None  # the loop that recorded the operation, where a condition in it selects iterations
    #: Stack id: the read after which one of several like values was used: both graphs computed all of them for it
    read: Id = 0
    held: bool = False  # of kind "outputs": a value is alive that was not before; else one is not that was
    holder: String = ""  # kind of what holds it: "list", "dict"..., "variable", "attribute"
    kept: Id = 0  # Stack id: the line that puts it there

    @property
    def subject(self) -> str:
        """What differs, named: "input of aten::embedding", "dim of aten::sum"."""
        operation = self.came.name if self.came is not None else "nothing"
        if self.kind == "operation":
            return "the end of the graph" if "barrier" in (self.old, self.new) else "the next operation"
        if self.kind in ("shape", "dtype", "sharding"):
            return f"input of {operation}" if operation != "barrier" else "of the live outputs"
        if self.kind == "size":
            return f"result of {operation}"
        if self.kind == "outputs":
            return f"value of {operation} " + ("is now still held" if self.held else "is no longer held")
        return f"{self.argument} of {operation}" if operation != "barrier" else self.argument


class GraphDiff(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How a new graph differs from the closest that ran at the same barrier. What that means the analysis concludes."""

    against: Id = 0  # the program of the earlier graph; 0: not known any more
    common: Count = 0  # operations before the first difference
    added: Count = 0  # operations that came, all over the graph, and
    removed: Count = 0  # that were there before
    differences: List[Difference] = []  # in order of recording: the first of each sort
    total: Count = 0  # how many there are, listed or not
    inputs: List[Difference] = []  # where operations came or went: inputs that one line made, of another shape or dtype
    roles: List[String] = []  # of all operations that came or went
    loop: Loop | None = None  # a loop with more or fewer iterations
    hyperparameters: List[tuple[String, float]] = []  # of the optimizer that recorded the trace's first new operation
    left: Difference | None = None  # of a graph that none was compared with: where its trace left the known traces
    #: operations of the forward pass that work along a dimension of another size: it ends there, or is named there
    along: List[Operation] = []
    captured: bool = False  # torch.compile captured one graph for both: what it takes as it comes differs


class Change(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Why a graph was compiled again: what of an earlier graph is not so in this one.

    Recordings of the embedded runtime have a :class:`GraphDiff` in its place, from which the analysis concludes this;
    those of earlier versions have it in the log.
    """

    #: "shape" | "dtype" | "size" | "operation" | "argument" | "scalar" | "outputs" | "inputs" | "aliasing" | "evicted"
    #: | "sharding"
    #: ("size": of a result whose shape depends on values, as it was read from the device)
    what: String
    #: the old and the new, for people: "i64[8,128]", "dim=1", "aten::relu (model.py:12)"
    old: String
    new: String
    #: what differs, named: "input 0 of aten::embedding", "argument dim of aten::sum"
    subject: String = ""
    stack: Id = 0  # Stack id of the operation that came
    expected: Id = 0  # Stack id of the operation that was expected
    position: Count = 0  # operations recorded in common before the paths part
    code_seen: bool = True  # this line had recorded this operation before (False: code run for the first time)
    name: String = ""  # what the program calls what differs: "model.head.weight", "lr", "history"; "" where not known
    made: Id = 0  # Stack id: the line that made the tensor that differs, or brought it to the device
    moved: bool = False  # it was brought from the host there
    #: what recorded the operations that came or went: "grad" (adding to ``.grad``) | "optimizer" | "state" (an
    #: optimizer making its state) | "zero_grad" | "clip" | "mode" (train/eval) | "autocast" | "random" | "backward" |
    #: "loop" (more or fewer passes) | "dynamic" (a size, or number, that Dynamo's graph takes as it comes) | ""
    role: String = ""
    condition: Id = 0  # Stack id: the if, for or while that decides whether they are recorded
    added: Count = 0  # operations that came, all over the graph, and
    removed: Count = 0  # that were there before
    against: Id = 0  # the program it was compared with: the closest that ran at this barrier
    element: bool = False  # the operation that came takes out a number for the host, see :attr:`Operation.element`
