"""What ``torch.compile`` does: graph breaks, compilations, recompilations, limits."""

from typing import ClassVar

import msgspec

from xlaprof.bounds import Count, CountIfKnown, Id, List, Ns, Number, String, Table

from .base import Event


class CompileAsked(Event, frozen=True, tag="asked"):
    """``torch.compile`` was called: of what it returned the first call will compile something."""

    t: Ns
    stack: Id = 0  # Stack id
    tid: Id = 1


class GraphBreak(Event, frozen=True, tag="break"):
    """Something cut a graph that was meant to be one (Dynamo, or a read inside ``compile``)."""

    t: Ns
    reason: String
    op: Id = 0  # Text id
    stack: Id = 0
    tid: Id = 1
    # of Dynamo's
    explanation: String = ""  # PyTorch's own words
    hint: String = ""  # what to change, one sentence
    gb: String = ""  # "GB0059": its number in PyTorch's registry of graph breaks
    compile: String = ""  # "0/0": the compilation that met it; see DynamoCompile
    func: Id = 0  # Text id: the function that was being compiled
    skipped: bool = (
        False  # Dynamo gave the function up: it, or what follows an earlier break in it, runs as plain Python
    )
    inside: String = ""  # of skipped: what Dynamo cannot leave half-way, "a loop"
    by_design: bool = False  # PyTorch or a library cuts here on purpose: nothing to mend
    at: Id = 0  # Stack id: the line of a library where it was met, below ``stack``


#: how the reason of a break begins where it is no break, but an error that leaves the function uncompiled
FAILS = "its compilation fails"
#: ``inside`` of a break that is an error, since the graph was asked for whole
WHOLE = "a graph that has to be whole (fullgraph=True, error_on_graph_break)"


class Conversion(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Operations of one line of a captured graph that make numbers wider, or copy tensors to another device."""

    kind: String  # "upcast" | "copy"
    op: String  # "softmax", "np.linspace"
    new: String  # "f32", "cpu"
    old: String = ""  # "bf16", "cuda"; "" of an upcast: the operation takes no floating-point numbers
    stack: Id = 0  # Stack id
    count: Count = 1
    mixed: bool = False  # of an upcast: another tensor that the operation takes is as wide already
    numpy: bool = False  # of a copy: NumPy's functions take what was copied
    beside: String = ""  # of mixed: the input of the function that that wide tensor is, or is computed of: "depth"


#: how the names of settings among the parts of a key in inductor's cache begin: "inductor_config[max_autotune]"
SETTING = "inductor_config"


class DynamoCompile(Event, frozen=True, tag="dynamo"):
    """``torch.compile`` traced and compiled one version of a function, or of what follows a graph break in it."""

    t: Ns
    dur: Ns  # all of it, the compiler behind it included; of which
    compile: String  # "frame/version", as PyTorch's own tools name it; of compiled autograd "!graph/frame/version"
    func: Id  # Text id: the function's name
    stack: Id = 0  # Stack id: the user's line that called the compiled function
    code: Id = 0  # Stack id: where the function is defined
    resumed: Id = 0  # Stack id: the line of the graph break it goes on behind; 0: it begins at the function's top
    backend: Id = 0  # Text id: "inductor"
    ops: Count = 0  # operations captured; 0: there was nothing to compile
    inputs: Count = 0
    guards: Count = 0
    restarted: Ns = 0  # ns of tracing that a graph break made useless
    lower: Ns = 0  # ns of the compiler behind it
    backward: bool = False  # the backward graph of an earlier one of the same name
    compiled: bool = True  # False: this function runs as if it were not compiled
    cached: bool = False  # the compiler behind it had it in its cache
    fail: String = ""  # type name of what stopped it
    tid: Id = 1
    #: ns by phase, which sum to ``dur`` where they are known: "Dynamo" | "guards" | "backend" | "AOTAutograd" |
    #: "Inductor" | "kernels" (their compilation) | "autotuning" | "cache" (look-up and load) | "garbage collection" |
    #: "unaccounted" (in none of them)
    phases: Table[String, Ns] = {}
    turns: Count = 0  # times that one line of the program made the same operation of the graph
    loop: Id = 0  # Stack id of that line
    loop_ops: Count = 0  # operations of lines that made some about as often
    graph: String = ""  # a hash of the captured graph, without its devices' numbers: ranks of one program have the same
    operations: String = ""  # a hash of the operations of that graph, in order, whatever their sizes and constants
    #: Stack id: the line that called torch._dynamo.reset() last, of a function that was compiled before that
    forgotten: Id = 0
    static: bool = False  # no size in that graph is a variable; False also where nothing is known of it
    parts: Count = (
        0  # into which DistributedDataParallel had the graph split, one for each bucket of gradients; 0: whole
    )
    bucket: Count = 0  # bytes of such a bucket
    conversions: List[Conversion] = []  # in the captured graph
    double: Count = 0  # operations of it that make float64 numbers
    #: with several ranks: what the graph's key in inductor's cache is made of, as hashes. A setting
    #: ("inductor_config[...]") that is not named is as it was last
    key: Table[String, String] = {}


class Guard(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A guard of ``torch.compile`` that failed: what it asked for, and what came."""

    #: "shape" | "size bound" | "stride" | "rank" | "dtype" | "device" | "dispatch" | "requires_grad" | "value" |
    #: "length" | "type" | "object" | "keys" | "attribute" | "training" | "mode" | "aliasing" | "backend" | "freed" |
    #: "guard" ("mode": of PyTorch, as grad_mode) | "reset": none failed, the same graph was compiled and forgotten
    kind: String
    subject: String = ""  # "x", "self.k", "self.drop", "grad_mode"
    old: String = ""  # for people: "f32[4,3]", "2", "True"
    new: String = ""
    text: String = ""  # the guard as Dynamo writes it
    dim: CountIfKnown = -1  # of sizes
    stack: Id = 0  # Stack id: the line that made it; of "reset" the line that called torch._dynamo.reset()
    hint: String = ""  # PyTorch's
    asked: Id = 0  # Stack id: of a size, or number, that was a variable, the line that made a constant of it
    handed: bool = False  # on what a graph break handed over: no argument or attribute, a value made in the function


class Recompile(Event, frozen=True, tag="recompile"):
    """``torch.compile`` compiles a function again: no version it has fits. Its :class:`DynamoCompile` follows."""

    t: Ns
    compile: String
    func: Id  # Text id
    stack: Id = 0  # Stack id: the user's line that called the compiled function
    code: Id = 0  # Stack id: where the function is defined
    resumed: Id = 0  # Stack id: the line of the graph break it goes on behind
    against: String = ""  # the compile id of the version that came nearest, of which
    guards: List[Guard] = []  # all guards that failed; the first is the one to blame
    versions: Count = 0  # how many there were
    fresh: bool = False  # the first for this object: a method of several modules is compiled for each
    dynamic: String = (
        ""  # torch.compile's argument: "True" | "False"; "": none, a size that changes is then made dynamic
    )
    tid: Id = 1


class DynamoLimit(Event, frozen=True, tag="limit"):
    """A function was recompiled so often that ``torch.compile`` gave up on it: what fits no version runs eagerly."""

    t: Ns
    compile: String
    func: Id  # Text id
    stack: Id = 0  # Stack id: the user's line that called the compiled function
    code: Id = 0  # Stack id: where the function is defined
    resumed: Id = 0  # Stack id: the line of the graph break it goes on behind
    limit: String = "recompile_limit"  # its name in torch._dynamo.config
    value: Number = 0
    guard: Guard | None = None  # the last that failed
    tid: Id = 1


class Autotune(Event, frozen=True, tag="autotune"):
    """``torch.compile`` tried several ways to compute something, or several forms of a kernel, and kept the fastest."""

    label: ClassVar[str] = "autotuning"

    t: Ns
    dur: Ns
    compile: String  # as in DynamoCompile
    func: Id  # Text id
    stack: Id = 0  # Stack id: the user's line that called the compiled function
    code: Id = 0  # Stack id: where the function is defined
    resumed: Id = 0  # Stack id: the line of the graph break it goes on behind
    backward: bool = False
    kernel: String = ""  # its name, or an operation with the shapes it was tuned for: "mm 2048x512, 512x512"
    apart: bool = False  # when it ran first, and not within the compilation, whose time has no part of this
    tid: Id = 1


class CudaGraph(Event, frozen=True, tag="cudagraph"):
    """``torch.compile`` recorded a CUDA graph of what it had compiled, for later calls to replay."""

    label: ClassVar[str] = "CUDA graph recorded"

    t: Ns
    dur: Ns
    compile: String  # as in DynamoCompile
    func: Id  # Text id
    stack: Id = 0  # Stack id: the user's line that called the compiled function
    code: Id = 0  # Stack id: where the function is defined
    resumed: Id = 0  # Stack id: the line of the graph break it goes on behind
    backward: bool = False
    sizes: String = ""  # of the inputs that vary: "f32[10,64]"; "": none does
    again: String = ""  # why none of those recorded before fits, in PyTorch's words; "": the first for these sizes
    line: Id = 0  # Stack id: of ``again``, the user's line that uses what changed
    tid: Id = 1


class NoCudaGraph(Event, frozen=True, tag="nocudagraph"):
    """A compiled graph, or a part of it, runs without a CUDA graph though it was compiled for them."""

    t: Ns
    compile: String  # as in DynamoCompile
    func: Id  # Text id
    stack: Id = 0  # Stack id: the user's line that called the compiled function
    code: Id = 0  # Stack id: where the function is defined
    resumed: Id = 0  # Stack id: the line of the graph break it goes on behind
    backward: bool = False
    #: "mutation" (of an input) | "copy" (to another device) | "cpu" | "size" (that values decide) | "dynamic" |
    #: "operator" | "limit" (of recordings) | "devices" | "asked" | "other"
    kind: String = "other"
    reason: String = ""  # PyTorch's words
    operator: String = ""  # "aten.nonzero", where that is the reason
    line: Id = 0  # Stack id: the user's line that is the reason; 0: not known
    ops: Count = 0  # operations that run without, of
    all: Count = 0  # so many of the graph; 0: all of it runs without
    tid: Id = 1


class Kernel(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A kernel that inductor generated."""

    name: String  # "cpp_fused_cos_sin_0"
    ops: List[String] = []  # the ATen operations that it was made of, "cos"; empty: not known
    calls: Count = 1  # in one call of the graph


class GeneratedCode(Event, frozen=True, tag="generated"):
    """Inductor's code of a graph was written, or came from its cache: what one call of the graph runs."""

    t: Ns
    compile: String  # as in DynamoCompile
    func: Id  # Text id
    stack: Id = 0  # Stack id: the user's line that called the compiled function
    code: Id = 0  # Stack id: where the function is defined
    resumed: Id = 0  # Stack id: the line of the graph break it goes on behind
    backward: bool = False
    launches: Count = 0  # of kernels that inductor generated
    calls: Count = 0  # of libraries, and of operators that inductor has no code for
    copies: Count = 0  # of tensors from one device to another
    kernels: List[Kernel] = []  # distinct ones, as they are first called
    library: Table[String, Count] = {}  # "mm" -> calls
    tid: Id = 1


class TimedGraph(Event, frozen=True, tag="graph"):
    """A graph of inductor's whose calls are timed. Written when it is made; of one from before, at its first call."""

    t: Ns
    graph: Id  # its number in this recording, from 1
    compile: String = ""  # as in DynamoCompile; "": it was made before the recording began
    func: Id = 0  # Text id; 0: not known, of a backward graph from before
    stack: Id = 0  # Stack id: the user's line that called the compiled function
    code: Id = 0  # Stack id: where the function is defined
    resumed: Id = 0  # Stack id: the line of the graph break it goes on behind
    line: Count = 0  # the same as a number: pieces of a function follow each other by it; 0: it begins at the top
    backward: bool = False
    tid: Id = 1


class GraphCalls(Event, frozen=True, tag="calls"):
    """Calls of timed graphs, on whatever thread, in order of their begin: all from the first to the last.

    Columns, with an entry for each call. They are host time: on a GPU a call returns when its kernels are launched.
    Between two such windows calls were not timed: ``skipped`` says how many.
    """

    t: Ns  # the first began
    graphs: List[Id]  # TimedGraph.graph; 0: not known
    after: List[Ns]  # ns since the begin of the call before; of the first 0
    took: List[Ns]
    tids: List[Id] = []  # empty: all were on thread ``tid``
    steps: List[Count] = []  # steps that ended since the begin of the call before; empty: none did
    skipped: Count = 0  # calls since the window before
    joined: bool = False  # the first of these calls is the last of the window before
    tid: Id = 1
