"""The analysed run as frozen structs, the same for report, JSON, terminal UI, export and gates.

All lengths are seconds (floats), all moments seconds since the first event of the run. ``to_json`` in
``xlaprof.pages.json`` writes these under the names of the ``--json`` contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from xlaprof.analysis.model.compiled import GraphCodeStat, GraphTimeStat, RunTimeStat

SEVERITIES = ("high", "medium", "low")
#: of a finding: "high": measured or read from the tape; "medium": the most probable of several; "low": a hint
CONFIDENCES = ("high", "medium", "low")


class Place(msgspec.Struct, frozen=True):
    """A line of the user's code, and what a library did under it."""

    file: str = ""
    line: int = 0
    func: str = ""
    code: str = ""  # the source line, stripped
    module: str = ""  # nn.Module path running there, where known
    library: tuple[Place, ...] = ()  # the lines of libraries under it that led to the event, innermost first
    loop: int = 0  # line of the innermost loop around it in its function; 0: none, or not known

    @property
    def at(self) -> tuple[str, int]:
        """File and line."""
        return self.file, self.line

    @property
    def acting(self) -> Place:
        """The innermost line: a library's, or this one where it acts itself."""
        return self.library[0] if self.library else self


class FromTo(msgspec.Struct, frozen=True):
    """A change (JSON: ``{"what", "from", "to"}``)."""

    what: str
    old: str = msgspec.field(name="from")
    new: str = msgspec.field(name="to")


class Buckets(msgspec.Struct, frozen=True):
    """One way to pad a size that changes: to the smallest of ``edges`` that holds it."""

    edges: tuple[int, ...]  # ascending
    compiles: int  # programs compiled: one for each edge that is used
    saved_s: float  # of compile time, against what was compiled without padding
    waste: float  # of the elements computed, the share that is padding, 0..1
    cost_s: float  # compile time plus the time spent on padding, over the run


class Moment(msgspec.Struct, frozen=True, order=True):
    """An event that a finding counts, or the recorded sum of several. Nanoseconds."""

    t: int
    dur: int = 0
    count: int = 1
    detail: str = ""  # what changed, say: "f32[8,4] -> f32[5,4]"


class Counted(Protocol):
    """Which events of a recording a finding counts."""

    def among(self, batches: Iterable[Sequence[Any]]) -> Iterator[Moment]:
        """The moments of the counted ones among ``batches``, the part of the recording that was analysed."""


class Finding(msgspec.Struct, frozen=True):
    """One defect: where, how often, what it cost, why, and what to change."""

    id: str  # stable: the same defect of two runs has the same id
    kind: str  # a file of xlaprof/analysis/findings
    severity: str  # one of SEVERITIES
    place: Place
    operation: str  # "aten::_local_scalar_dense", "aten::embedding", "" where there is none
    count: int
    cost_s: float  # seconds a fix would have given back over the run
    cost_per_step_s: float
    cause: str  # one sentence
    advice: str  # one sentence
    change: FromTo | None = None
    evidence: tuple[str, ...] = ()  # short facts: "step 24: 1.82 s, i64[8,128] -> i64[5,128]"
    gain_s: float = 0.0  # predicted: the run would be this much shorter, from the critical path of host and device
    gain_per_step_s: float = 0.0
    gain_last_s: float | None = None  # the same if this fix comes after those of all other findings; None: as gain_s
    confidence: str = "high"  # one of CONFIDENCES
    rhythm: str = ""  # "every step", "every 10 steps", "3 times a step", "once", "" where it is not known
    also: tuple[Place, ...] = ()  # other lines that take part: the branch not taken, the list that holds, the barrier
    values: tuple[tuple[str, int], ...] = ()  # every value seen of what changes, and how often, in order of first use
    remedy: str = ""  # code that does what the advice says, "" where one sentence is enough
    buckets: tuple[Buckets, ...] = ()  # where the fix is padding: with 1, 2, 3... sizes
    counted: Counted | None = None  # the events behind ``count``; None: not known
    parts: tuple[Finding, ...] = ()  # what else the same line costs for the same cause; within cost and gain
    unit: str = ""  # what ``count`` counts where it is no occurrence: "look" (at the main thread), "call looked at"
    #: of a graph break: seconds of each step between the graphs on both sides, measured; of each time where no steps
    #: are named. No part of the cost.
    between_s: float = 0.0


class RunInfo(msgspec.Struct, frozen=True):
    """The header of a report."""

    path: str
    host: str
    pid: int
    rank: int
    world: int
    argv: tuple[str, ...]
    started_unix_s: float
    wall_s: float
    versions: dict[str, str]
    platform: str  # "cpu" | "cuda" | "tpu" | ""
    device_kind: str
    device_count: int
    finished: bool  # an End event was read
    error: str  # type name of the exception that ended the program, or "exit code 3"
    events: int
    dropped: dict[str, int]  # why -> count
    notes: tuple[str, ...] = ()  # of the reader: "torn last line skipped", ...

    @property
    def lacks(self) -> int:
        """Events that the recording dropped. Names are none, nor are texts of programs: what lacks them is there."""
        return sum(count for why, count in self.dropped.items() if why not in ("names", "code"))


class TimeSplit(msgspec.Struct, frozen=True):
    """Where the time of the analysed steps went. The parts sum to ``total_s``.

    Host time is split; ``device_busy_s`` stands beside it (the device works while the host does). The first step,
    which compiles, is left out where there are others.
    """

    total_s: float
    device_busy_s: float
    compile_s: float
    tracing_s: float
    transfer_wait_s: float
    fallback_s: float
    execute_s: float  # handing programs over
    data_wait_s: float
    gc_s: float
    scopes_s: float  # in named scopes, none of the above
    other_s: float
    upload_s: float = 0.0  # copying host memory to the device


class StepStats(msgspec.Struct, frozen=True):
    """Step times in seconds; the first step apart, since it compiles."""

    name: str
    count: int
    first_s: float
    median_s: float
    p95_s: float
    min_s: float
    max_s: float
    last_num: int
    recent_s: tuple[float, ...]  # the last 120, oldest first, for a sparkline
    split: TimeSplit
    #: True: no StepTrace in the program, steps are the stretches between barriers
    inferred: bool = False
    total: int = 0  # steps that there will be, where the program says so: StepTrace(..., total=1000)


class ScopeStat(msgspec.Struct, frozen=True):
    """One named scope over the run. ``self_s`` leaves out scopes inside it."""

    name: str
    count: int
    total_s: float
    self_s: float
    median_s: float
    max_s: float
    errors: int
    device_idle_s: float  # device idle while the host was in it
    steps: int = 0  # in which it was; 0: in none, as steps lie in it, or no step is recorded


class Gap(msgspec.Struct, frozen=True):
    """One stretch of device idle time."""

    start_s: float
    dur_s: float
    step: int  # step_num it began in; -1: outside steps
    blame: tuple[tuple[str, float], ...]  # (cause, seconds), largest first; the parts sum to dur_s
    place: Place


class IdleStat(msgspec.Struct, frozen=True):
    """Device idle time within the analysed window, every nanosecond blamed on one cause."""

    window_s: float
    busy_s: float
    idle_s: float
    idle_ratio: float
    causes: tuple[tuple[str, float], ...]  # (cause, seconds), largest first; they sum to idle_s
    gaps: tuple[Gap, ...]  # the longest, longest first


class ProgramStat(msgspec.Struct, frozen=True):
    """A compiled program: its graph, the cost of compiling it, its use."""

    program: int  # numbered from 1 in order of compilation
    ops: int
    inputs: int
    outputs: int
    trigger: str
    compile_s: float
    lower_s: float  # of compile_s: lowering to StableHLO
    backend_s: float  # of compile_s: XLA
    cached: bool  # loaded from a cache of programs
    runs: int
    busy_s: float  # the device was busy with it
    place: Place  # the barrier or read that needed it
    needs_bytes: int  # of the device while it runs: inputs, outputs and what is held between; 0: not known


class CompileStat(msgspec.Struct, frozen=True):
    """The cost of compiling. ``programs``: those that took longest."""

    count: int = 0
    total_s: float = 0.0
    lower_s: float = 0.0
    backend_s: float = 0.0
    cached: int = 0  # of count: loaded from a cache of programs
    loaded_s: float = 0.0  # making those cached once took so much more
    saved_s: float = 0.0  # such a cache saves this much more in a second run, or would
    unkept: tuple[tuple[str, int], ...] = ()  # why programs are compiled in every run, and how many, most first
    once: int = 0  # programs that ran once at most: compiling them did not pay
    programs: tuple[ProgramStat, ...] = ()


class ExchangeStat(msgspec.Struct, frozen=True):
    """Operations of one kind by which the devices of a program exchange data, for one line. Bytes are of one device."""

    kind: str  # as HLO calls it: "all-reduce"
    shape: str  # of the largest
    bytes: int  # of all
    count: int
    place: Place
    arguments: tuple[str, ...]  # whose placement forces it, and how they are divided: "w: dimension 1 in 4"


class JitProgramStat(msgspec.Struct, frozen=True):
    """The largest program of a function of JAX's at one line, by what XLA says of it. Bytes are of one device."""

    place: Place  # the line that calls it
    programs: int  # of the function there
    arguments: int
    results: int
    temporary: int  # held while it runs
    donated: int  # results in the place of arguments
    flops: int
    accessed: int  # bytes read and written, by XLA's estimate
    devices: int
    runs: int  # of all programs there, as far as they were told one by one
    busy_s: float  # of these
    exchanges: tuple[ExchangeStat, ...] = ()

    @property
    def needs_bytes(self) -> int:
        """Of a device, while it runs."""
        return max(0, self.arguments + self.results + self.temporary - self.donated)


class ConversionStat(msgspec.Struct, frozen=True):
    """Operations of one line of a compiled graph that make numbers wider, or copy tensors to another device."""

    kind: str  # "upcast" | "copy"
    op: str
    old: str  # dtype or device; "" of an upcast: the operation takes no floating-point numbers
    new: str
    place: Place
    count: int  # operations
    mixed: bool  # of an upcast: another tensor that the operation takes is as wide already
    numpy: bool  # of a copy: NumPy's functions take what was copied


class FunctionStat(msgspec.Struct, frozen=True):
    """A function that ``torch.compile`` compiled, with the parts after its graph breaks."""

    name: str
    place: Place  # its definition
    backend: str
    graphs: int  # compiled, the backward ones not counted
    again: int  # of graphs: compiled again, for another value, size or mode
    breaks: int  # lines that break a graph
    compile_s: float
    plain: tuple[str, ...] = ()  # what of it runs as plain Python: "all of it", "what follows line 9"
    phases: tuple[tuple[str, float], ...] = ()  # seconds of ``compile_s``, the longest first; empty: not known
    programs: tuple[JitProgramStat, ...] = ()  # of JAX's, by line; the largest first
    needs: tuple[str, ...] = ()  # what the largest of them needs, in words
    tuned: tuple[tuple[str, float], ...] = ()  # seconds of autotuning by kernel or operation, the longest first
    cuda_graphs: tuple[str, ...] = ()  # which of it runs by CUDA graphs, and what without and why, in words
    parts: int = 0  # into which a graph of it is split for DistributedDataParallel, one for each bucket; 0: it is whole
    by_design: tuple[str, ...] = ()  # where its graphs end as they are meant to, in words
    code: tuple[GraphCodeStat, ...] = ()  # inductor's, of each graph and version, in the order of compilation
    #: seconds of a step before the function hit a recompile limit, without compiling, and since; empty: not known
    limit_steps_s: tuple[float, ...] = ()
    conversions: tuple[ConversionStat, ...] = ()  # in its graphs, in their order
    runs: tuple[str, ...] = ()  # how long its graphs run, what, what of it was fused and what they convert, in words
    graph_times: tuple[GraphTimeStat, ...] = ()  # of each piece, forward and backward; empty: not known


class MemoryReading(msgspec.Struct, frozen=True):
    """What was alive on the device at a moment: at a barrier, without what programs need while they run."""

    at_s: float
    tensors: int
    bytes: int
    programs: int  # compiled and not forgotten; without JAX's own


class HeldStat(msgspec.Struct, frozen=True):
    """A line whose tensors outlived several readings; of those that were looked at."""

    place: Place
    tensors: int
    bytes: int


class KeptStat(msgspec.Struct, frozen=True):
    """A list or dict of the program that keeps ever more tensors alive."""

    path: str  # as the program calls it: "self.history"
    kind: str
    length: int  # when it was looked at
    places: tuple[Place, ...]  # that put something into it


class MemoryStat(msgspec.Struct, frozen=True):
    """Live tensors and programs over the run. Of several recordings: those of the one that was read most often."""

    readings: int = 0
    last: MemoryReading | None = None  # None: nothing was read
    most: MemoryReading | None = None  # the first with most bytes, of all recordings
    course: tuple[MemoryReading, ...] = ()  # in order of time, thinned evenly; with the last, and the one with most
    held: tuple[HeldStat, ...] = ()
    kept: KeptStat | None = None


class Charge(msgspec.Struct, frozen=True):
    """A part of the time that ``torch.compile``, or JAX, spent on compiling, with its reason."""

    what: str  # "first" | "necessary" | "chosen" | "break" | "recompile" | "failed" | "unexplained"
    seconds: float
    why: str  # a sentence


class CudaGraphStat(msgspec.Struct, frozen=True):
    """Functions that were compiled to run by CUDA graphs."""

    functions: int = 0  # of which
    without: int = 0  # run without, all of a graph of theirs
    part: int = 0  # run without in part
    recordings: int = 0
    recording_s: float = 0.0
    calls_s: float = 0.0  # the main thread was seen in calls of these functions
    without_s: float = 0.0  # of which in calls of those ``without``
    text: str = ""  # all of it in words; "" where there are none


class CompiledFunctions(msgspec.Struct, frozen=True):
    """What ``torch.compile``, or JAX, did. ``functions``: those that took longest. The charges sum to ``total_s``."""

    count: int = 0  # functions
    graphs: int = 0
    total_s: float = 0.0
    functions: tuple[FunctionStat, ...] = ()
    charges: tuple[Charge, ...] = ()
    cuda_graphs: CudaGraphStat = CudaGraphStat()
    run_time: RunTimeStat = RunTimeStat()


class CutStat(msgspec.Struct, frozen=True):
    """The batches that TorchTPU cut for one reason."""

    reason: str  # TorchTPU's word: "item()"
    what: str  # what that means; "" where it is not known
    count: int
    cached: int  # of which it had a program
    failed: int
    compile_s: float  # in making programs, by its log
    places: tuple[Place, ...]  # the user's lines of their last operations, most first


class TorchTpuStat(msgspec.Struct, frozen=True):
    """Operations that TorchTPU put off, and ran in batches."""

    batches: int = 0
    cached: int = 0
    failed: int = 0
    compile_s: float = 0.0
    reasons: tuple[CutStat, ...] = ()  # most first
    text: str = ""  # what to change, where most batches are cut for a reason that the program decides on

    @property
    def made(self) -> int:
        """Batches for which a program was made."""
        return self.batches - self.cached - self.failed


class Account(msgspec.Struct, frozen=True):
    """A part of the run's time, and why it was spent. Each second of a run is in one account.

    ``explained_s``, ``normal_s`` and ``unexplained_s`` sum to ``total_s``. Of several recordings, the seconds are
    summed over all; of several devices, they are the mean.
    """

    #: "compile" | "torch.compile" | "jax" | "data" | "idle" | "busy" | "before", "after" the first and last program;
    #: without a device "import" | "run"
    what: str
    total_s: float
    share: float  # of the run, 0..1
    explained_s: float  # by ``findings``
    findings: tuple[str, ...]  # their ids
    normal_s: float
    reason: str  # why it is normal; "" where nothing is
    unexplained_s: float
    text: str  # all of it in words: "17.3 s (68%) compiling, normal: 2 graphs first compiled at ..."
    remark: str = ""  # what ``text`` ends with beside: "The host waited for it at train.py:31: about 3.2 s, ..."

    @property
    def costly(self) -> bool:
        """Whether it is more than a tenth of the run."""
        return self.share > 0.1


class Activity(msgspec.Struct, frozen=True):
    """What the program is doing now, for the live UI."""

    state: str  # "starting" | "compiling" | "running" | "waiting" | "finished" | "lost"
    step: int
    since_s: float
    detail: str = ""


class Prediction(msgspec.Struct, frozen=True):
    """The run with all findings fixed, from the critical path of host and device."""

    gain_s: float  # the run would be this much shorter; fixes overlap: not the sum of the findings' gains
    wall_s: float  # of the run with the fixes
    step_s: float  # median step now; 0 where there are no steps
    fixed_step_s: float  # median step with the fixes; 0 where there are no steps


class Report(msgspec.Struct, frozen=True):
    """The result of the analysis of a run."""

    run: RunInfo
    steps: tuple[StepStats, ...]  # by name; the one with most time first
    counters: dict[str, int]
    seconds: dict[str, float]
    scopes: tuple[ScopeStat, ...]
    idle: IdleStat
    findings: tuple[Finding, ...]  # the one whose fix gives back most first
    activity: Activity
    predicted: Prediction | None = None  # None: nothing would be gained
    compilation: CompileStat = CompileStat()
    torch_compile: CompiledFunctions = CompiledFunctions()
    jax: CompiledFunctions = CompiledFunctions()
    torch_tpu: TorchTpuStat = TorchTpuStat()
    accounts: tuple[Account, ...] = ()  # the largest first
    memory: MemoryStat = MemoryStat()

    @property
    def clean(self) -> bool:
        """Whether there is no finding."""
        return not self.findings

    @property
    def observed(self) -> bool:
        """Whether a compiler or a device was seen at work. Without, no finding says nothing of the program."""
        counted = any(count for name, count in self.counters.items() if name != "GarbageCollection")
        return counted or max(self.torch_compile.count, self.jax.count, self.torch_tpu.batches) > 0
