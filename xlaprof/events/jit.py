"""What ``jax.jit`` does: programs compiled, and in what the call that needed one differs from earlier calls."""

import msgspec

from xlaprof.bounds import Count, CountIfKnown, Id, List, Ns, String

from .base import Event


class ArgumentChange(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One thing in which a call differs from the earlier call of the function that is most like it."""

    #: "shape" | "rank" | "dtype" | "weak type" | "sharding" | "device" | "static" | "structure" (of a pytree) |
    #: "field" (of what a pytree has besides its leaves) | "anew" (another object, of the same text, in either) |
    #: "function" (another object of the same code) | "options" (of ``jit``) | "config" | "evicted" (JAX's caches were
    #: cleared) | "parameter" (of an operation, which is no argument) | "unknown"
    kind: String
    name: String = ""  # as the program writes it: "batch['tokens']", "state.params['dense']['kernel']"
    old: String = ""  # for people: "f32[8,128]", "'relu'"; values of static arguments alone
    new: String = ""
    dim: CountIfKnown = -1  # of shapes


class JitCompile(Event, frozen=True, tag="jit"):
    """JAX made a program for a call of a jitted function, or for an operation outside of one. ``dur`` is the whole of
    it, without programs that were made meanwhile for values computed while it was traced."""

    t: Ns
    dur: Ns
    func: Id  # Text id: the function's name
    stack: Id = 0  # Stack id: the user's line that called it
    code: Id = 0  # Stack id: where the function is defined; 0: an operation of JAX's, or a library's own function
    trace: Ns = 0  # ns: Python to a jaxpr
    lower: Ns = 0  # ns: the jaxpr to StableHLO
    backend: Ns = 0  # ns of XLA's compilation, or of the read from its persistent cache
    cached: bool = False  # it came from the persistent compilation cache
    versions: Count = 0  # programs that calls of this function had before
    changes: List[ArgumentChange] = []  # the first few; empty: the first program, or it is not known what differs
    known: bool = True  # False: JAX does not say which call needed it (``lower().compile()``, a backward pass)
    tid: Id = 1
    ops: Count = 0  # operations before XLA's passes, up to 50,000; 0: not known
    turns: Count = 0  # of a program of 1,000 or more: the times that one line of the program made the same operation
    loop: Id = 0  # Stack id of that line
    loop_ops: Count = 0  # operations of lines that made some about as often
    arrays: Count = 0  # among the arguments
    #: why the persistent cache does not hold it: "off", "fast" (below the time from which JAX keeps one), "other" (host
    #: callbacks, another process than the first, its size); "": it does, or JAX does not say
    unkept: String = ""
    number: Id = 0  # of its texts, where these are kept: see Code
    #: a digest of its operations and the shapes of their results, whatever numbers they are given; 0: not known
    content: Count = 0
    cleared: Id = 0  # Stack id: where JAX's caches were cleared, of a program that was dropped so


class OutsideOperations(Event, frozen=True, tag="outside"):
    """JAX ran an operation outside of any jitted function, a program of its own. Counted since the last such event."""

    t: Ns
    func: Id  # Text id: the operation
    calls: Count
    stack: Id = 0  # Stack id


class HostCallbacks(Event, frozen=True, tag="callbacks"):
    """Python that a program called while it ran. Counted since the last such event of its line."""

    t: Ns
    func: Id  # Text id: "jax.debug.callback"
    calls: Count
    ns: Ns  # in all of them, with what was brought to and from the device for them
    stack: Id = 0  # Stack id: the line of the call


class Collective(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Operations of one kind by which the devices of a program exchange data, for one line."""

    kind: String  # as HLO calls it: "all-reduce"
    shape: String = ""  # of the largest result, on one device: "f32[8,16]"
    bytes: Count = 0  # of all results, on one device
    count: Count = 1  # operations in the program
    stack: Id = 0  # Stack id: the line that asked for it
    arguments: List[String] = []  # whose placement forces it, with that: "w: P(None, 'd')"


class JitProgram(Event, frozen=True, tag="program"):
    """What XLA says of a program for a jitted function, once it ran for the first time. Of one device, in bytes."""

    t: Ns
    func: Id  # Text id: the function's name
    stack: Id = 0  # Stack id: the user's line that called it
    program: Id = 0  # of its executions
    arguments: Count = 0
    results: Count = 0
    temporary: Count = 0  # held while it runs
    donated: Count = 0  # results in the place of arguments
    flops: Count = 0
    accessed: Count = 0  # bytes that its operations read and write, by XLA's estimate
    devices: Count = 1
    collectives: List[Collective] = []


class Undonated(Event, frozen=True, tag="undonated"):
    """Arguments that nothing held when the function was called next, with results of the same shapes beside them."""

    t: Ns
    func: Id  # Text id: the function's name
    stack: Id = 0  # Stack id: the user's line that called it
    arguments: List[String] = []  # their names
    arrays: Count = 0
    bytes: Count = 0  # of all devices, in each call
    calls: Count = 0  # looked at; nothing held them after any of these
    library: String = ""  # whose wrapper of ``jax.jit`` it is: "equinox", "flax"; "": none


class RepeatedWork(Event, frozen=True, tag="repeated"):
    """What a program computes from arguments that were the same arrays in each call, or from none: again and again."""

    t: Ns
    func: Id  # Text id: the function's name
    stack: Id = 0  # Stack id: the user's line that called it
    line: Id = 0  # Stack id: the line that asked for the dearest operation of it; 0: not known
    operation: String = ""  # that one, as JAX calls it: "eigh"
    shape: List[Count] = []  # of its result
    arguments: List[String] = []  # names of the arguments that it depends on; empty: it depends on none
    share: Count = 0  # thousandths of the program's work, by an estimate from shapes
    calls: Count = 0  # looked at
