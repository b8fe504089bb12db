"""Every kind of finding is held to all that makes one: its page, its words, its limits, its occurrences."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from story import Story

from analysis.test_barriers import micro_batches
from analysis.test_compilation import compiled
from analysis.test_compiled import Compiling, shape
from analysis.test_findings import ragged, reading
from analysis.test_gaps import Watched
from analysis.test_growth import trained
from analysis.test_jitted import Jitted
from analysis.test_missing_barriers import attack, unrolled
from analysis.test_reads import looped, selecting
from analysis.test_uploads import uploading
from xlaprof.analysis import findings
from xlaprof.analysis.findings import kinds, names
from xlaprof.analysis.gates.limits import LIMITS
from xlaprof.analysis.occurrences import MOST, occurrences
from xlaprof.analysis.run import Run
from xlaprof.events import (
    ArgumentChange,
    Change,
    CompileAsked,
    DeviceWait,
    DynamoLimit,
    Event,
    FrozenCompile,
    HostCallbacks,
    JitCompile,
    JitProgram,
    Look,
    NoCudaGraph,
    OutsideOperations,
    RepeatedWork,
    Undonated,
)

PAGES = Path(__file__).parents[2] / "docs" / "findings"

PLANTED: dict[str, Callable[[], list[Event]]] = {}  # "kind: how" -> the events


def planted(name: str) -> Callable[[Callable[[], Story]], Callable[[], Story]]:
    def plant(make: Callable[[], Story]) -> Callable[[], Story]:
        PLANTED[name] = lambda: make().events
        return make

    return plant


planted("recompile: another shape")(ragged)
planted("transfer: in named steps")(reading)
planted("transfer: in steps between barriers")(looped)
planted("fallback: a size that values decide, and its gradient")(selecting)
planted("missing_barrier: a loop in a step")(lambda: _unrolled())
planted("excess_barriers: micro-batches")(lambda: micro_batches(with_forward=False))
planted("growth: what is alive")(lambda: trained(200, tensors=6, size=40_000))
planted("growth: what is alive in a long run")(lambda: trained(1_500, tensors=6, size=40_000))
planted("growth: steps that get slower")(lambda: trained(300, slower=0.02))


@planted("unrolled_loop: in a jitted function")
def _unrolled_by_jax() -> Story:
    story = Story()
    line, name = story.line(9, "x = jnp.sin(x) + i", loops=(8,)), story.text("simulate")
    story.emit(
        JitCompile(
            t=story.now, dur=6_000_000_000, func=name, stack=line, ops=6_001, turns=2_000, loop=line, loop_ops=6_000
        )
    )
    story.spend(6_100)
    return story


@planted("uncompiled: only methods of a compiled module are called")
def _uncompiled() -> Story:
    story = Story()
    story.emit(CompileAsked(story.now, story.line(9, "model = torch.compile(Model())")))
    story.spend(8_000)
    story.finish()
    return story


@planted("donation: a state that nothing holds")
def _donation() -> Story:
    story = Story()
    line, name = story.line(9, "state = train_step(state, batch)"), story.text("train_step")
    story.emit(JitProgram(story.now, name, line, arguments=50 << 20, results=45 << 20, temporary=5 << 20))
    story.emit(Undonated(story.now, name, line, ["state"], arrays=12, bytes=45 << 20, calls=16))
    with story.step():
        story.spend(100)
    return story


@planted("repeated_work: a matrix that stays is decomposed in each call")
def _repeated_work() -> Story:
    story = Jitted()
    line = story.line(4, "values = jnp.linalg.eigvalsh(laplacian)")
    story.emit(
        RepeatedWork(story.now, story.text("step"), story.call, line, "eigh", [400, 400], ["laplacian"], 600, 16)
    )
    for turn in range(20):
        with story.step("step"):
            if turn == 0:
                story.made()
            story.execute("step", 30, story.call)
            story.spend(30)
    return story


@planted("cuda_graph: an argument is written")
def _without_cuda_graph() -> Story:
    compiling = Compiling()
    compiling.compile("0/0")
    where = {"stack": compiling.call, "code": compiling.code, "func": compiling.func}
    compiling.story.emit(NoCudaGraph(t=compiling.story.now, compile="0/0", kind="mutation", **where))  # type: ignore[arg-type]
    return compiling.story


@planted("op_by_op: outside of jitted functions")
def _op_by_op() -> Story:
    story = Story()
    line, name = story.line(9, "x = jnp.tanh(x)"), story.text("tanh")
    story.emit(Look(t=story.now, dur=2_000_000_000, stack=line))
    story.spend(2_000)
    story.emit(OutsideOperations(t=story.now, func=name, calls=40_000, stack=line))
    return story


@planted("host_callback: in the turns of a scan")
def _calling_back() -> Story:
    story = Story()
    line, name = story.line(9, "jax.debug.callback(note, loss)"), story.text("jax.debug.callback")
    story.emit(Look(t=story.now, dur=2_000_000_000, stack=line))
    story.spend(2_000)
    story.emit(HostCallbacks(t=story.now, func=name, calls=6_000, ns=1_500_000_000, stack=line))
    return story


@planted("device_wait: in every step")
def _waiting() -> Story:
    story = Story()
    barrier, wait = story.line(9, "torch_xla.sync()"), story.line(10, "jax.block_until_ready(w)")
    for _ in range(20):
        with story.step():
            story.spend(15)
            story.barrier(barrier, device=20)
            story.emit(DeviceWait(story.now, 20_000_000, wait))
            story.spend(20)
    return story


@planted("upload: the same data in each step")
def _same_data() -> Story:
    return uploading(again=True)


@planted("upload: new data that each step waits for")
def _new_data() -> Story:
    return uploading(again=False)


@planted("frozen: compiled after warm-up, and refused")
def _frozen() -> Story:
    story = Story()
    line, name = story.line(9, "predict(tokens)"), story.text("predict")
    for refused in (False, True):
        why = "the shape of tokens went from i32[128] to i32[131]"
        story.emit(FrozenCompile(story.now, "jax", name, why, line, 4, refused))
        if not refused:
            story.emit(JitCompile(t=story.now - 1, dur=20_000_000, func=name, stack=line))
        story.spend(30)
    return story


PLANTED["compile_cost: a large graph"] = lambda: [compiled(1, 2.0, 1_000), compiled(2, 90.0, 10_000, stack=2)]


@planted("recompile: a failed guard of torch.compile")
def _guard() -> Story:
    compiling = Compiling()
    compiling.compile("0/0")
    compiling.recompile("0/1", shape(4, 5), ms=300)
    compiling.recompile("0/2", shape(5, 9), ms=200)
    return compiling.story


@planted("recompile: arguments of JAX's programs")
def _arguments() -> Story:
    """Programs made again for each of the things in which calls differ, and for a value of an operation outside."""
    story = Story()
    differing = [
        ArgumentChange("shape", "batch['tokens']", "f32[8,128]", "f32[8,133]", dim=1),
        ArgumentChange("rank", "x", "f32[8]", "f32[8,1]"),
        ArgumentChange("dtype", "scale", "f32[]", "i32[]"),
        ArgumentChange("weak type", "rate", "f32[] weak", "f32[]"),
        ArgumentChange("sharding", "state.params", "P('x')", "P()"),
        ArgumentChange("device", "x", "cpu:0", "cpu:1"),
        ArgumentChange("static", "step", "3", "4"),
        ArgumentChange("structure", "batch", "{'a': *}", "{'a': *, 'b': *}"),
        ArgumentChange("function", "loss", "<lambda>", "<lambda>"),
        ArgumentChange("options", "", "static_argnums=0", ""),
        ArgumentChange("config", "jax_enable_x64", "False", "True"),
        ArgumentChange("evicted"),
    ]
    for number, change in enumerate(differing):
        name, code = story.text(f"step_{change.kind}"), story.line(100 + number, "@jax.jit", func="model")
        call = story.line(10 + number, f"loss = step(state, batch)  # {change.kind}")
        for version in range(6):
            new = f"{change.new}{version}" if change.kind == "static" else change.new
            changes = [msgspec.structs.replace(change, new=new)] if version else []
            t = story.now
            story.spend(200)
            story.emit(JitCompile(t, story.now - t, name, call, code, versions=version, changes=changes))
    return story


@planted("recompile: a limit of torch.compile")
def _limit() -> Story:
    compiling = Compiling()
    limit = DynamoLimit(t=0, compile="0/8", func=compiling.func, stack=compiling.call, value=8)
    compiling.story.emit(limit)
    return compiling.story


@planted("fallback: on the CPU")
def _fallback() -> Story:
    story = Story()
    barrier, eig = story.line(20, "xr.sync()"), story.line(18, "torch.linalg.eigvals(w)")
    for _ in range(10):
        with story.step():
            story.fallback(eig, "aten::linalg_eig", 3)
            story.barrier(barrier, 5, compile=1)
    return story


@planted("missing_barrier: steps without one")
def _unbarred() -> Story:
    story = Story()
    for _ in range(50):
        with story.step("denoise"):
            story.trace(2)
    read = story.line(44, "picture = x.cpu()")
    story.compile("unrolled", 4000, read, trigger="read", ops=5000)
    story.execute("unrolled", 80, read, "read")
    story.read(read, "aten::_to_copy")
    return story


def _unrolled() -> Story:
    story = Story()
    return unrolled(story, attack(story))


@planted("excess_barriers: at several lines")
def _scattered() -> Story:
    story = Story()
    for _ in range(10):
        with story.step():
            for line in (10, 14, 18, 22):
                story.trace(0.2)
                story.barrier(story.line(line, "xr.sync()"), 1, f"at {line}", 50, ops=20 + line, dispatch=0.5)
    return story


@planted("excess_barriers: in the model")
def _in_forward() -> Story:
    story = Story()
    inner = story.line(30, "xm.mark_step()", func="Deep.forward", outer=(41,), loops=(28, 39))
    end = story.line(42, "xm.mark_step()", func="main", loops=(39,))
    for _ in range(12):
        for _ in range(4):
            story.trace(0.3)
            story.barrier(inner, 1, "layer", 50, ops=9, dispatch=0.4)
        story.barrier(end, 1, "sum", 50, ops=3, dispatch=0.4)
    return story


@planted("growing_graph: at a barrier")
def _growing() -> Story:
    story = Story()
    barrier, line = story.line(20, "xr.sync()"), story.line(12, "state = cell(state)")
    for n in range(8):
        with story.step():
            change = Change("operation", "barrier", "aten::mm", "the end of the graph", stack=line)
            story.barrier(barrier, 5, f"graph {n}", 100, ops=100 + 50 * n, change=change if n else None)
    return story


@planted("growing_graph: at a read")
def _growing_reads() -> Story:
    story = Story()
    read = story.line(44, "print(loss.item())", loops=(40,))
    for n in range(9):
        story.trace(1)
        story.compile(f"graph {n}", 100, read, trigger="read", ops=100 + 50 * n)
        story.execute(f"graph {n}", 1, read, "read")
        story.read(read)
    return story


@planted("graph_break: a print")
def _break() -> Story:
    compiling = Compiling()
    compiling.broke("0/0", 21)
    compiling.compile("0/0", 400)
    compiling.broke("0/1", 21)
    return compiling.story


@planted("graph_break: nothing captured")
def _nothing() -> Story:
    compiling = Compiling()
    compiling.broke("0/0", 21, "disabled by a library", by_design=True)
    compiling.compile("0/0", ops=0)
    compiling.compile("1/0", ops=0)
    return compiling.story


def _idle(do: Callable[[Watched, int, int], None]) -> Story:
    """Twelve steps, in each of which the device idles while the host does something."""
    story = Watched()
    barrier, line = story.line(20, "xr.sync()"), story.line(15, "rows = prepare()")
    for _ in range(12):
        with story.step():
            do(story, line, barrier)
            story.barrier(barrier, device=5, dispatch=0, compile=0)
    story.finish()
    return story


def _scope(story: Watched, line: int, barrier: int) -> None:
    with story.scope("load", line):
        story.spend(20)


@planted("idle_gap: a stretch of Python, only some of which was looked into")
def _partly_seen() -> Story:
    turn = iter(range(12))

    def do(story: Watched, line: int, barrier: int) -> None:
        if next(turn) % 2:
            story.seen(20, "python", story.line(101, "x = crunch(x)", func="crunch", outer=(15,)))
        else:
            story.python(20, line, barrier)

    return _idle(do)


@planted("idle_gap: several things for one thread, in turns")
def _in_turns() -> Story:
    turn = iter(range(12))

    def do(story: Watched, line: int, barrier: int) -> None:
        kind = next(turn) % 3
        story.seen(20, "gil" if kind else "wait", barrier, "reader", line)
        if kind == 1:  # two gaps in this step
            story.barrier(barrier, device=5, dispatch=0, compile=0)
            story.seen(9, "wait", line, "reader", line)

    return _idle(do)


planted("idle_gap: a scope")(lambda: _idle(_scope))
planted("idle_gap: plain Python")(lambda: _idle(lambda story, line, end: story.python(20, line, end)))
planted("idle_gap: plain Python that was looked into")(
    lambda: _idle(lambda story, line, _: story.seen(20, "python", line))
)
planted("idle_gap: a data wait")(lambda: _idle(lambda story, line, _: story.data(20, line)))
planted("idle_gap: a data wait, looked into")(lambda: _idle(lambda story, line, _: story.seen(20, "data", line)))
planted("idle_gap: garbage collection")(lambda: _idle(lambda story, line, _: story.gc(20)))
planted("idle_gap: a checkpoint")(lambda: _idle(lambda story, line, _: story.seen(20, "checkpoint", line)))
planted("idle_gap: a sleep")(lambda: _idle(lambda story, line, _: story.seen(20, "wait", line)))
planted("idle_gap: the interpreter's lock")(
    lambda: _idle(lambda story, line, end: story.seen(20, "gil", end, "reader", line))
)


@pytest.mark.parametrize("name", PLANTED)
def test_a_finding_happened_as_often_as_it_counts(name: str) -> None:
    events = PLANTED[name]()
    run = Run().feed_all(events)
    found = [finding for finding in run.report().findings if finding.kind == name.partition(":")[0]]
    assert found
    for finding in found:
        happened = occurrences([events], run, finding)  # type: ignore[arg-type]
        assert happened.total == finding.count > 0
        assert sum(one.count for one in happened.first) == happened.total or len(happened.first) == MOST
        assert sum(happened.parts) == happened.total
        assert all(0 <= one.at_s <= happened.wall_s for one in happened.first)


def test_every_kind_is_planted() -> None:
    assert {name.partition(":")[0] for name in PLANTED} == set(names())


@pytest.mark.parametrize("name", PLANTED)
def test_after_a_warm_up_too(name: str) -> None:
    events = PLANTED[name]()
    run = Run(since_step=2).feed_all(events)
    for finding in run.report().findings:
        assert occurrences([events], run, finding).total == finding.count  # type: ignore[arg-type]


@pytest.mark.parametrize("name", PLANTED)
def test_the_file_of_a_kind_yields_this_kind(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = name.partition(":")[0]
    alone = {kind: kinds()[kind]}
    monkeypatch.setattr(findings, "kinds", lambda: alone)
    assert {finding.kind for finding in Run().feed_all(PLANTED[name]()).report().findings} == {kind}


def test_every_kind_has_its_page_and_is_listed() -> None:
    listed = re.findall(r"^\| \[(\w+)\]\((\w+)\.md\)", (PAGES / "README.md").read_text("utf-8"), re.MULTILINE)
    assert {kind for kind, page in listed if kind == page} == set(names())
    for name in names():
        assert (PAGES / f"{name}.md").read_text("utf-8").startswith(f"# {name}\n")


def test_limits_are_those_of_budgets_and_each_is_the_unit_of_one_kind_at_most() -> None:
    known = {limit.name for limit in LIMITS if limit.limits}
    units = [limit for kind in kinds().values() for limit in kind.unit_of]
    assert len(units) == len(set(units))
    for name, kind in kinds().items():
        assert {*kind.unit_of, *kind.blamed_for} <= known - {"max_step_time", "no_findings"}, "those concern all kinds"
        assert kind.unit_of or kind.blamed_for or name == "repeated_work", "the device's time is no limit but a step's"
