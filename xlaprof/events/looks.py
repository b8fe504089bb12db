"""What looks at the host's threads find."""

from xlaprof.bounds import Id, Ns, String

from .base import Event


class Sample(Event, frozen=True, tag="sample"):
    """What a look at the host's stack found while the device was idle and nothing was recorded.

    Over ``[t, t + dur)`` every look found the same. The host is sampled in long gaps only.
    """

    t: Ns
    dur: Ns
    stack: Id = 0  # Stack id
    #: "python": ran Python | "torch": ran PyTorch's Python, or waited for its autograd | "data": drew the next item of
    #: its data | "checkpoint": saved or loaded a checkpoint | "wait": waited outside Python (sleep, file, lock...) |
    #: "call": was in the call of a compiled program, which may run there |
    #: "gil": waited for the interpreter's lock, which thread ``holder`` had | "cpu": waited for a processor | "": ?
    state: String = ""
    tid: Id = 1
    holder: String = ""  # name of the thread that held the interpreter's lock, and
    at: Id = 0  # Stack id: where it was


class Look(Event, frozen=True, tag="look"):
    """What looks at the main thread found, ten a second or, late in a long run, two: what no event of its own records.

    Over ``[t, t + dur)`` every look found the same: the main thread ran at this line of the user's. One whose state is
    "device" is none of these: it came at a moment of its own, and stands for the time since the one before.
    """

    t: Ns
    dur: Ns
    stack: Id = 0  # Stack id: the user's frames, of an import the innermost one
    #: as of a Sample | "import": imported a module | "device": was in a call that waits for the device, which was busy
    state: String = ""
