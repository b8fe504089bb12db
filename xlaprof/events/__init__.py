"""The schema of a recording: one frozen struct per kind of event. Every source (the embedded runtime, Dynamo, JAX, a
profile on disk) yields these. A ``run.log`` is JSON Lines of them, first a :class:`Header`.

Conventions
-----------
* ``t`` is a moment and ``dur`` a length, both in nanoseconds of the recording process's monotonic clock
  (``time.perf_counter_ns``). :class:`Header` pairs that clock with the unix clock.
* A string that repeats is sent once as :class:`Text` and then named by its ``id``; a place in the user's
  code likewise as :class:`Stack`. Fields that hold such an id say so. Id 0 means "none".
* Tensor *values* never enter the log: shapes, dtypes, names and Python numbers that shaped a graph do.
* Unknown fields are ignored by readers, missing ones take their default: fields are only ever added.
* What a value can be is said by its type (:mod:`xlaprof.bounds`): readers refuse everything else.
"""

# No file of the schema imports annotations from __future__: msgspec would evaluate each from its text, at every start.

from typing import ClassVar

import msgspec

from xlaprof.bounds import Count, CountIfKnown, Id, Key, List, Ns, Number, Seconds, String, Table, Triple, UnixNs, Value
from xlaprof.vocabulary import STANDARD, Vocabulary

from .base import SCHEMA, Event
from .code import Code
from .dynamo import (
    Autotune,
    CompileAsked,
    Conversion,
    CudaGraph,
    DynamoCompile,
    DynamoLimit,
    GeneratedCode,
    GraphBreak,
    GraphCalls,
    Guard,
    Kernel,
    NoCudaGraph,
    Recompile,
    TimedGraph,
)
from .graph_diff import Block, Change, Difference, GraphDiff, Loop, Operation
from .jit import (
    ArgumentChange,
    Collective,
    HostCallbacks,
    JitCompile,
    JitProgram,
    OutsideOperations,
    RepeatedWork,
    Undonated,
)
from .looks import Look, Sample
from .torch_tpu import TorchTpuBatch

__all__ = [
    "NEWS",
    "SCHEMA",
    "ArgumentChange",
    "Autotune",
    "Block",
    "Change",
    "Code",
    "Collective",
    "CompileAsked",
    "Conversion",
    "CudaGraph",
    "Difference",
    "DynamoCompile",
    "DynamoLimit",
    "Event",
    "GeneratedCode",
    "GraphBreak",
    "GraphCalls",
    "GraphDiff",
    "Guard",
    "HostCallbacks",
    "JitCompile",
    "JitProgram",
    "Kernel",
    "Look",
    "Loop",
    "NoCudaGraph",
    "Operation",
    "OutsideOperations",
    "Recompile",
    "RepeatedWork",
    "Sample",
    "TimedGraph",
    "TorchTpuBatch",
    "Undonated",
]


class Header(Event, frozen=True, tag="header"):
    """First line of every log: what ran, where, and how to read its clocks."""

    schema: Count
    pid: Id
    mono_ns: Ns  # time.perf_counter_ns() and
    unix_ns: UnixNs  # time.time_ns(), read together
    host: String = ""
    rank: Id = 0
    world: Count = 1
    argv: List[String] = []
    cwd: String = ""
    versions: Table[String, String] = {}  # {"xlaprof": ..., "python": ..., "torch": ..., "jax": ...}
    device: Table[String, String] = {}  # {"platform": "cpu", "kind": ..., "count": "1"}, late: see Device


class Device(Event, frozen=True, tag="device"):
    """The accelerator that runs the program's work, known once the runtime, or CUDA, is up."""

    t: Ns
    platform: String  # "cpu" | "cuda" | "tpu"
    kind: String  # what PJRT or CUDA calls it, e.g. "NVIDIA H200"
    count: Count = 1
    cores: Count = 0  # processors that it shares with the host; 0: none, or not known


class Source(Event, frozen=True, tag="source"):
    """A live source began to observe the program. A log without one is the embedded runtime's."""

    t: Ns
    name: String  # "torch.compile"
    words: Vocabulary = STANDARD


class Text(Event, frozen=True, tag="text"):
    """An interned string."""

    id: Id
    text: String


class Frame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One frame of a stack: ``file``, ``func``, ``code`` and ``head`` are :class:`Text` ids."""

    file: Id
    line: Count
    func: Id
    code: Id = 0  # the source line, stripped
    loop: Count = 0  # line of the innermost for or while around it in its function; 0: none, or not known
    head: Id = 0  # Text id: that line's source, stripped


class Stack(Event, frozen=True, tag="stack"):
    """An interned place in the user's program: frames innermost first, those of libraries apart.

    ``frames[0]`` is *the line*: the innermost frame of code that is the user's own. ``module`` names the
    ``nn.Module`` path that was running there, where known. ``library``: the frames of installed packages below that
    line, or between two of the user's, innermost first; PyTorch's, Python's and our own are left out.
    """

    id: Id
    frames: List[Frame]
    module: Id = 0  # Text id
    library: List[Frame] = []
    depths: List[Count] = []  # of each frame in ``library``: how many of the user's are further in; 0: below the line
    takers: List[Id] = []  # Text ids: the statements that take what the innermost line binds; see source_text.takers


class Thread(Event, frozen=True, tag="thread"):
    """Name of a host thread; ``tid`` is ``threading.get_ident()`` made small (1, 2, ...)."""

    tid: Id
    name: String


class Scope(Event, frozen=True, tag="scope"):
    """A ``Trace("name", **metadata)`` scope that has ended."""

    name: Id  # Text id
    t: Ns
    dur: Ns
    tid: Id = 1
    depth: Count = 0  # scopes open around it on its thread
    meta: Table[String, Value] = {}
    error: String = ""  # type name of the exception that left it
    stack: Id = 0  # Stack id of the line that entered it: in the first scope of a name only


class Step(Event, frozen=True, tag="step"):
    """A ``StepTrace("train", step_num=i)`` that has ended."""

    name: Id  # Text id
    num: Number
    t: Ns
    dur: Ns
    tid: Id = 1
    meta: Table[String, Value] = {}
    error: String = ""


class StepDigest(Event, frozen=True, tag="digest"):
    """A steady step of a long run, summed instead of written event by event.

    It stands for the step and for everything inside it that was not written out. Histogram triples are
    ``[count, total ns, longest ns]`` of the events' ``dur``; keys are decimal ids (JSON has no other keys).
    Events of kinds that have no field here (uploads, data waits, holes...) are written as they are, before it.
    """

    name: Id  # Text id
    num: Number
    t: Ns
    dur: Ns
    tid: Id = 1
    executions: Count = 0
    busy: Ns = 0  # ns the device was busy in the step
    tracing: Ns = 0  # ns
    barriers: Count = 0
    scopes: Table[Key, Triple] = {}  # Text id -> triple
    reads: Table[Key, Triple] = {}  # "stack:op Text id" -> triple
    fallbacks: Table[Key, Triple] = {}  # "stack:op Text id" -> triple


class Compile(Event, frozen=True, tag="compile"):
    """A graph was lowered and compiled. ``dur`` is the whole; ``lower`` and ``backend`` are parts of it."""

    t: Ns
    dur: Ns
    program: Id  # numbered from 1 in order of first compilation
    graph: String  # hexadecimal hash of the canonical graph
    ops: Count
    inputs: Count
    outputs: Count
    stack: Id = 0  # Stack id: the barrier or read that needed it
    trigger: String = "sync"  # "sync" | "read" | "fallback" | "eager" | "compile" | "dynamo" | "loader" | "ahead"
    change: Change | None = None  # of earlier versions: see ``diff``
    lower: Ns = 0  # ns of our lowering (tape -> jax -> StableHLO)
    backend: Ns = 0  # ns of XLA's compilation
    cached: bool = False  # came from the persistent compilation cache
    tid: Id = 1
    loops: Count = 0  # most times one line recorded the same operation in this graph
    loop: Id = 0  # Stack id of that line
    loop_ops: Count = 0  # operations from one such time to the next, on average
    loop_shared: bool = False  # each time over one and the same value, as turns of a loop do and layers do not
    again: CountIfKnown = -1  # of a read: operations of its graph that the next barrier runs once more; -1: not known
    diff: GraphDiff | None = None  # None: nothing comparable was recorded before
    turns: List[Count] = []  # of the loops around that line and its callers, innermost first; empty: not known
    loop_trains: bool = False  # each time an optimizer updated the same parameters, after another backward pass
    loop_learns: bool = False  # a backward pass, or an optimizer's step, lies between two of these times
    spared: Ns = 0  # of a cached program: ns that making it once took beyond ``dur``, where that is known
    kept: bool = False  # the next run finds the program in the cache
    unkept: String = ""  # why it does not
    arguments: Count = 0  # bytes, as XLA says; all 0: it was not asked
    results: Count = 0
    temporary: Count = 0  # held while it runs
    donated: Count = 0  # results in the place of arguments


class Compiling(Event, frozen=True, tag="compiling"):
    """A compilation has begun, or a phase of it; what it made follows when it has ended: a :class:`Compile`, a
    :class:`~xlaprof.events.dynamo.DynamoCompile` or a :class:`~xlaprof.events.jit.JitCompile`.

    For live views: the analysis of a whole log may skip it.
    """

    t: Ns
    ops: Count
    stack: Id = 0  # Stack id: the barrier or read that needs it
    trigger: String = "sync"
    tid: Id = 1
    first: Difference | None = None  # in what it first differs from an earlier graph; the Compile has all of it
    phase: String = ""  # that begins: "lowering" | "XLA", or one of DynamoCompile's; empty: not known
    spent: Ns = 0  # by the phases before
    func: Id = 0  # Text id: name of the function, where it is one's


class Barrier(Event, frozen=True, tag="barrier"):
    """A cut of the tape: ``sync()``, ``mark_step()``, a loader's, an exit from ``step()``."""

    t: Ns
    dur: Ns
    trigger: String = "sync"
    stack: Id = 0  # Stack id
    ops: Count = 0  # operations pending when it was reached
    tracing: Ns = 0  # ns spent recording operations since the barrier before
    execution: Count = 0  # seq of the Execute it caused; 0: nothing was pending
    tid: Id = 1
    loops: Count = 0  # most times one line recorded the same operation in this graph
    loop: Id = 0  # Stack id of that line
    loop_ops: Count = 0  # operations from one such time to the next, on average
    loop_shared: bool = False  # each time over one and the same value, as turns of a loop do and layers do not
    turns: List[Count] = []  # of the loops around that line and its callers, innermost first; empty: not known
    loop_trains: bool = False  # each time an optimizer updated the same parameters, after another backward pass
    loop_learns: bool = False  # a backward pass, or an optimizer's step, lies between two of these times
    trains: bool = False  # a backward pass, or an optimizer's step, is part of this graph


class Execute(Event, frozen=True, tag="execute"):
    """A program ran (0: any did). The device was busy over ``[start, end]``, start = max(enqueue, previous end)."""

    ascending: ClassVar[tuple[str, ...]] = ("start", "end")

    seq: Count
    program: Id
    t: Ns  # enqueued
    start: Ns
    end: Ns
    enqueue: Ns = 0  # ns the host spent handing it over
    trigger: String = "sync"
    stack: Id = 0  # Stack id
    device: Id = 0
    error: String = ""
    calls: Count = 1  # programs it stands for (eager mode: those that follow each other); of program 0: stretches

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise ValueError(f"an execution that begins at {self.start} cannot end at {self.end}")


class TransferToDevice(Event, frozen=True, tag="h2d"):
    """Host memory was copied to the device."""

    label: ClassVar[str] = "transfer to device"

    t: Ns
    dur: Ns
    bytes: Count
    tensors: Count = 1
    stack: Id = 0
    tid: Id = 1
    calls: Count = 1  # uploads it stands for: calls of a jitted function that follow each other fast are told as one
    again: bool = False  # this line had brought the same data to the device before
    what: Id = 0  # Text id: which data came again, "text f64[8000,96]"


class TransferFromDevice(Event, frozen=True, tag="d2h"):
    """The host read a value from the device: ``.item()``, ``.cpu()``, ``print``, ``bool(tensor)``, a fallback."""

    t: Ns
    dur: Ns  # wait and copy
    wait: Ns  # ns waiting for the device to finish computing the value
    bytes: Count
    op: Id = 0  # Text id: "aten::_local_scalar_dense", "aten::_to_copy", "aten::nonzero"...
    stack: Id = 0
    tid: Id = 1
    tensors: Count = 1
    via: Id = 0  # Text id: the library's function that the line called and that read: "clip_grad_norm_"; 0: none
    late: bool = False  # of an earlier program than the last enqueued, or read in a thread of its own: nothing stopped


class DeviceWait(Event, frozen=True, tag="wait"):
    """The host waited for the device to finish, reading nothing: ``sync(wait=True)``, ``wait_device_ops()``."""

    t: Ns
    dur: Ns
    stack: Id = 0  # Stack id
    tid: Id = 1


class Fallback(Event, frozen=True, tag="fallback"):
    """An operation that has no lowering ran on the CPU; ``dur`` includes its transfers."""

    t: Ns
    dur: Ns
    op: Id  # Text id: "aten::op"
    stack: Id = 0
    tid: Id = 1


class Selected(Event, frozen=True, tag="selected"):
    """An operation reused a mask's element count that the host had read before. Once for each graph. PyTorch/XLA
    reads it again, on the CPU: there the line costs a fallback too."""

    t: Ns
    op: Id  # Text id: "aten::index_put"
    stack: Id = 0  # Stack id
    tid: Id = 1


class Gc(Event, frozen=True, tag="gc"):
    """Python's garbage collector stopped the host."""

    t: Ns
    dur: Ns
    generation: Count
    collected: Count = 0
    tid: Id = 1
    stack: Id = 0  # Stack id: where the program was


class DataWait(Event, frozen=True, tag="data"):
    """The training loop waited for its data loader."""

    label: ClassVar[str] = "data wait"

    t: Ns
    dur: Ns
    stack: Id = 0
    tid: Id = 1


class Batches(Event, frozen=True, tag="batches"):
    """What makes the batches that a line draws: once for each such pair, and each time that workers are started."""

    t: int
    stack: int = 0  # Stack id: the line that draws
    made: int = 0  # Stack id: the user's collate function, at the line that finds a size; else the dataset
    collated: bool = True  # by a collate function of the user's; False: the dataset makes the rows alone
    workers: Count = 0  # processes that were started for this pass over the data, which end with it
    dur: Ns = 0  # the wait for their first batch


class Hole(Event, frozen=True, tag="hole"):
    """The host recorded no operation for a while: plain Python, between two known lines of the program."""

    t: Ns
    dur: Ns
    before: Id = 0  # Stack id of the operation recorded last
    after: Id = 0  # Stack id of the operation recorded next
    tid: Id = 1


class Kept(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A container of the program (a list, a dict...) that keeps ever more tensors alive."""

    path: String  # as the program calls it: "history", "Metrics.history", "logs['loss']"
    kind: String = "list"
    length: Count = 0
    history: bool = False  # the tensors in it require grad: everything their backward needs is kept, too
    puts: List[Id] = []  # Stack ids: the lines that put something into it


class Live(Event, frozen=True, tag="live"):
    """What is alive on the device, read at a barrier now and then."""

    t: Ns
    tensors: Count
    bytes: Count
    held: List[Triple] = []  # of lines whose tensors outlived several readings ``[Stack id, tensors, bytes]``
    tid: Id = 1
    kept: Kept | None = None  # the container that keeps such tensors, where one was found that grows


class Evicted(Event, frozen=True, tag="evicted"):
    """A compiled graph was forgotten because a bounded cache was full."""

    t: Ns
    program: Id
    graph: String
    limit: Count


class Counters(Event, frozen=True, tag="counters"):
    """Exact totals since the recording began, under PyTorch/XLA's names.

    Written at steps and at the end. ``counts`` holds numbers of events (for timed metrics: samples),
    ``seconds`` the sums of the timed ones.
    """

    t: Ns
    counts: Table[String, Number]
    seconds: Table[String, Seconds] = {}


class FrozenCompile(Event, frozen=True, tag="frozen"):
    """``xlaprof.frozen`` had frozen the program, and something was about to be compiled all the same."""

    t: Ns
    by: String  # "torch.compile" | "jax" | "xla"
    func: Id = 0  # Text id
    why: String = ""  # in what it differs from what was compiled before
    stack: Id = 0  # Stack id
    step: Count = 0  # steps that had ended
    refused: bool = False  # by an exception: it was not compiled
    tid: Id = 1


class Dropped(Event, frozen=True, tag="dropped"):
    """Events that are *not* in the log, and why: "disk", "queue", "encode". Never silent.

    "names" counts texts and stacks that the full tables refused: their events are there, but name no place.
    "code" counts texts of programs that could not be kept beside the log.
    """

    t: Ns
    count: Count
    why: String
    detail: String = ""


class End(Event, frozen=True, tag="end"):
    """Last line of a recording that was stopped in order."""

    t: Ns
    error: String = ""  # how the program ended, if not in order: type name of the exception, or "exit code 3"


#: What a recording consists of.
AnyEvent = Event
#: Kinds that come seldom, and make a finding, or one of them worse: written, and reported, sooner than others.
NEWS = frozenset({Compile, DynamoCompile, DynamoLimit, GraphBreak, JitCompile, Recompile})


def kinds() -> dict[str, type[Event]]:
    """All kinds of events, by tag."""
    return {str(kind.__struct_config__.tag): kind for kind in Event.__subclasses__()}
