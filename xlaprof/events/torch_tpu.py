"""What TorchTPU does: batches of operations that it had put off."""

from typing import ClassVar

from xlaprof.bounds import Count, Id, Ns, String

from .base import Event


class TorchTpuBatch(Event, frozen=True, tag="tpubatch"):
    """TorchTPU had operations run that it had put off: it found a program for them in its cache, or made one."""

    label: ClassVar[str] = "TorchTPU batch"

    t: Ns
    dur: Ns = 0  # in which the program was found or made, by TorchTPU's log; 0: not known
    name: Id = 0  # Text id: TorchTPU's, after one of the operations
    reason: String = ""  # why they were put off no longer, in TorchTPU's words: "item()"
    cached: bool = False
    failed: bool = False  # no program could be made
    ops: Count = 0  # 0: not known
    stack: Id = 0  # Stack id: the user's line of the last operation that has one
    # of a program that was made: where its graph first differs from the most similar one before, if one is similar
    line: Id = 0  # Stack id: the user's line of that operation
    old: String = ""  # that line of the graph then, and
    new: String = ""  # now
