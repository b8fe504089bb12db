"""Texts of compiled programs, which lie in a folder beside the log."""

from xlaprof.bounds import Count, Id, Ns, String

from .base import Event


class Code(Event, frozen=True, tag="code"):
    """A text of a compiled program was written into the folder beside the log: only where that was asked for."""

    t: Ns
    source: String  # "xla" | "torch.compile" | "jax"
    key: String  # which program: Compile.program, DynamoCompile.compile (after resets "0/0#2"), JitCompile.number
    #: "ir" | "stablehlo" | "hlo" | "fx" | "aot forward" | "aot backward" | "aot joint" | "post grad" | "generated" |
    #: "jaxpr". A program may have several of one form, say for its backward part.
    form: String
    file: String  # its name in the folder
    bytes: Count = 0
    func: Id = 0  # Text id
    stack: Id = 0  # Stack id: the user's line that needed the program
