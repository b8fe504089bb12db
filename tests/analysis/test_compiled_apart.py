"""Functions of torch.compile on several ranks: which differ, in what, and who waited for whom, all of it planted."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from story import MS, Story

from xlaprof.analysis.run import KeptRun
from xlaprof.analysis.summary import summarize
from xlaprof.analysis.timeline.standing import Standing
from xlaprof.analysis.views.compiled_apart import Apart
from xlaprof.analysis.views.details import details
from xlaprof.analysis.views.ranks import Member, ranks
from xlaprof.events import Compiling, DynamoCompile, Guard, Look, Recompile


class Compiled:
    """A rank that compiles ``forward``, and trains; all on a clock of its own, which began at another time."""

    def __init__(self, rank: int, world: int = 2, begins: int = 0, **fields: object) -> None:
        self.rank = rank
        self.story = Story("/home/ada/train.py", rank=rank, start=begins, world=world, **fields)  # type: ignore[arg-type]
        self.call = self.story.line(40, "loss = model(x).mean()")
        self.backward = self.story.line(41, "loss.backward()")
        self.loading = self.story.line(39, "x = load(step)")
        self.code = self.story.line(10, "def forward(self, x):", func="Net.forward")
        self.func = self.story.text("Net.forward")
        self.graphs = 0

    def compile(self, ms: float = 500, graph: str = "same", ops: int = 16, parts: int = 0, guard: Guard | None = None,
                backward: bool = False, key: dict[str, str] | None = None) -> Compiled:  # fmt: skip
        where = {"stack": self.call, "code": self.code, "func": self.func}
        name = f"0/{self.graphs}"
        if guard is not None:
            self.story.emit(Recompile(t=self.story.now, compile=name, guards=[guard], versions=self.graphs, **where))
        start = self.story.now
        self.story.spend(ms)
        self.story.emit(DynamoCompile(start, round(ms * MS), name, ops=ops, graph=graph, parts=parts,
                                      backward=backward, key=key or {}, **where))  # type: ignore[arg-type]  # fmt: skip
        self.graphs += not backward
        return self

    def stand(self, ms: float, line: int | None = None) -> Compiled:
        """The main thread is seen there, as looks tell it: at most a second at a time."""
        left = ms
        while left > 0:
            part = min(left, 1_000)
            self.story.emit(Look(self.story.now, round(part * MS), line or self.backward, "torch"))
            self.story.spend(part)
            left -= part
        return self

    def member(self) -> Member:
        settled = KeptRun().feed_all(self.story.finish()).settled()
        report = summarize(settled, f"run.rank{self.rank}.log", (), None)
        return Member(report.run.path, report, details=details(settled))


def beside(*those: Compiled) -> tuple[Apart, ...]:
    return ranks([one.member() for one in those]).functions


def size(new: int) -> Guard:
    return Guard("shape", "x", "f32[16,512]", f"f32[{new},512]", dim=0)


def test_ranks_that_compile_alike_have_nothing_to_tell() -> None:
    both = [Compiled(rank).compile(500 + 50 * rank, parts=4).stand(40).compile(20, backward=True) for rank in (0, 1)]
    assert beside(*both) == ()
    assert beside(Compiled(0).compile()) == ()


def test_a_rank_that_compiles_again_alone_is_named_with_its_reason_and_with_who_waits_for_it() -> None:
    waiting = Compiled(0).compile(500, parts=4).stand(2_000)
    alone = Compiled(1, begins=7_000).compile(500, parts=4)
    alone.compile(1_800, graph="other", parts=4, guard=size(32)).stand(200)
    (found,) = beside(waiting, alone)
    assert (found.name, found.place.line) == ("Net.forward", 10)
    assert [(one.rank, one.graphs, one.again, one.parts) for one in found.ranks] == [(0, 1, 0, 4), (1, 2, 1, 4)]
    assert found.graphs == (), "the numbers tell it"
    (wait,) = found.waits
    assert (wait.ranks, wait.of, wait.place.line, wait.together) == ((0,), 1, 41, True)
    assert (wait.seconds, wait.compile_s) == (pytest.approx(1.8), pytest.approx(1.8)), "the clocks began apart"
    assert found.told == (
        "rank 0: 1 graph of 4 parts, 500 ms",
        "rank 1: 2 graphs of 4 parts each, 2.30 s, compiled again once: shape of x: f32[16,512] -> f32[32,512]",
        "rank 1 compiled it for 1.80 s; for 1.80 s of that rank 0 waited for it at loss.backward() (train.py:41)",
    )


def test_as_many_graphs_that_are_not_the_same_are_told_with_their_operations() -> None:
    found = beside(*(Compiled(rank, 3).compile(graph="with rank 0's", ops=17) if rank == 0 else
                     Compiled(rank, 3).compile() for rank in range(3)))  # fmt: skip
    assert [one.told for one in found] == [
        ("as many graphs, but not the same: 17 operations on rank 0, 16 operations on ranks 1, 2",)
    ]
    other = Compiled(1).compile(graph="with rank 1's", ops=15).compile(graph="and larger", ops=15, guard=size(32))
    (more,) = beside(Compiled(0).compile(), other)
    assert more.told[-1] == "no graph is the same on all: 16 operations on rank 0, 15, 15 operations on rank 1"
    older = [Compiled(0).compile(graph=""), Compiled(1).compile()]
    assert beside(*older) == (), "a recording without hashes says nothing of them"


def test_the_parts_in_which_the_keys_of_one_graph_differ_are_named() -> None:
    """Settings are told once, and again where they change: in a backward graph, here."""
    key = {"gm": "a", "example_inputs": "b", "system_info": "c"}
    settings = {"inductor_config[max_autotune]": "off", "inductor_config[cpp.threads]": "one"}
    ranks = [Compiled(rank, 3).compile(key=key | settings) for rank in range(3)]
    assert beside(*ranks) == ()
    for rank, one in enumerate(ranks):
        changed = {"inductor_config[max_autotune]": "on"} if rank == 1 else {}
        one.compile(20, backward=True, key={"gm": "back"} | changed)
        one.compile(graph="another", guard=size(32), key=key | {"gm": "d"})
    (found,) = beside(*ranks)
    assert found.told == (
        "the same graph has other keys in inductor's cache on ranks 0, 2 and rank 1, so each compiles it for itself: "
        "they differ in torch._inductor.config.max_autotune",
    )
    older = [Compiled(0).compile(), Compiled(1).compile(key=key | settings)]
    assert beside(*older) == (), "a recording without keys says nothing of them"


def test_a_line_of_a_ranks_own_is_no_wait_though_it_may_be_where_the_rank_stood() -> None:
    short = Compiled(0).compile(500)
    short.stand(600, short.loading).stand(1_200, short.call)
    alone = Compiled(1).compile(500).compile(1_800, "other", guard=size(32))
    (found,) = beside(short, alone)
    (stood,) = found.waits
    assert (stood.place.line, stood.together) == (40, False), "600 ms of loading are a third of it"
    assert "for 1.20 s of that rank 0 stood at loss = model(x).mean() (train.py:40)" in found.told[-1]


def test_a_rank_that_has_not_come_as_far_is_not_said_to_differ() -> None:
    ahead = Compiled(1).compile(100)
    with ahead.story.step():
        ahead.compile(100, "other", guard=size(32))
    behind = Compiled(0).compile(100)
    settled = KeptRun().feed_all(behind.story.events).settled()
    unfinished = Member("run.rank0.log", summarize(settled, "run.rank0.log", (), None), details=details(settled))
    assert ranks([unfinished, ahead.member()]).functions == ()
    assert len(ranks([behind.member(), ahead.member()]).functions) == 1, "once it has ended it does"


def test_a_rank_that_still_compiles_is_named_with_those_that_wait_for_it() -> None:
    hanging = Compiled(3, 4).compile(100)
    hanging.story.emit(Compiling(hanging.story.now, 0, hanging.call, "dynamo"))
    others = [Compiled(rank, 4).compile(100).stand(5_000) for rank in range(3)]
    others[2].stand(200, others[2].loading)
    members = []
    for one in (*others, hanging):
        settled = KeptRun().feed_all(one.story.events).settled()
        members.append(Member(f"{one.rank}", summarize(settled, f"{one.rank}", (), None), details=details(settled)))
    (found,) = ranks(members).unended
    assert (found.rank, found.seconds, found.place.line) == (3, pytest.approx(5.2), 40)
    assert found.told == (
        "rank 3 still compiles for loss = model(x).mean() (train.py:40), 5.20 s after it began; "
        "ranks 0, 1, 2 wait for it at loss.backward() (train.py:41), for 5.00 s so far"
    )
    assert ranks([others[0].member(), hanging.member()]).unended == (), "its recording has ended, and the compilation"
    assert ranks(members[-1:]).unended == ()


def test_a_rank_that_stands_at_one_line_stands_there_wherever_a_library_has_got_to() -> None:
    standing = Standing()
    for at in range(6):
        standing.add(Look(at * 100 * MS, 100 * MS, 10 + at % 3, "python"), ("train.py", 41))
    standing.add(Look(600 * MS, 100 * MS, 10, "python"), ("train.py", 42))
    (one,) = standing.all()
    assert (one.start, one.dur, one.stack) == (0, 600 * MS, 10)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 900), st.integers(0, 300)), max_size=60))
def test_where_a_rank_stood_is_in_order_and_no_longer_than_what_was_seen(looks: list[tuple[int, int, int]]) -> None:
    standing, now, seen = Standing(), 0, 0
    for stack, ms, pause in looks:
        now += pause * MS
        standing.add(Look(now, ms * MS, stack, "torch"), ("train.py", stack))
        now += ms * MS
        seen += ms + min(pause, 100)
    found = standing.all()
    assert all(one.dur >= 200 * MS for one in found)
    assert all(one.start + one.dur <= other.start for one, other in pairwise(found))
    assert sum(one.dur for one in found) <= seen * MS
