"""What inductor made of a graph, and how much of the time its graphs ran."""

from __future__ import annotations

import msgspec


class KernelStat(msgspec.Struct, frozen=True):
    """A kernel that inductor generated."""

    name: str
    ops: tuple[str, ...]  # the ATen operations that it was made of; empty: not known
    calls: int  # in one call of the graph


class GraphCodeStat(msgspec.Struct, frozen=True):
    """What one call of a graph runs, by the code that inductor generated for it."""

    compile: str  # Dynamo's id of the compilation
    backward: bool
    line: int  # of the graph break that it goes on behind; 0: it begins at the function's top
    launches: int  # of generated kernels
    calls: int  # of libraries, and of operators that inductor has no code for
    copies: int  # of tensors from one device to another
    kernels: tuple[KernelStat, ...]  # distinct ones, as they are first called
    library: tuple[tuple[str, int], ...]  # function and calls, most first


class GraphTimeStat(msgspec.Struct, frozen=True):
    """Calls of a graph of ``torch.compile``, as far as they were timed; a sample of all calls. The host's time."""

    line: int  # of the graph break that it follows; 0: it begins at the function's top
    backward: bool
    share: float  # of the time
    step_s: float | None  # seconds of a step; None: no steps are named
    call_s: float  # of a call, on average
    calls: int  # that this is known of, directly or by the sample


class RunTimeStat(msgspec.Struct, frozen=True):
    """How much of the time ran in graphs of ``torch.compile``."""

    share: float | None = None  # of the time in which at least one ran; None: not known
    step_s: float | None = None  # a step, from its first call to that of the next; None: no steps are named
    timed: int = 0  # calls that were timed, of
    calls: int = 0  # so many
    text: str = ""  # in words; or why it is not known
