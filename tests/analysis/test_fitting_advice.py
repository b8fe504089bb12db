"""Advice names all that has to change together, and what would be lost: stories with known truth."""

from __future__ import annotations

from itertools import pairwise

import pytest
from story import Story

from xlaprof.analysis.model import Finding
from xlaprof.events import Batches, Block, Difference, DynamoCompile, GraphDiff, Guard, Look, Operation

from .compiling import Compiling


def grown(code: str, *others: str, first: int = 4, each: int = 4, steps: int = 6) -> Finding:
    """Tensors that are longer in each step, one for each line."""
    story = Story()
    barrier = story.line(90, "torch_xla.sync()")
    lines = [story.line(20 + n, text) for n, text in enumerate((code, *others))]
    sizes = [first + each * n for n in range(steps)]
    for n, (old, new) in enumerate(pairwise([sizes[0], *sizes])):
        differences = [
            Difference(
                "shape", f"f32[{old},{8 + at}]", f"f32[{new},{8 + at}]", came=Operation("aten::cat", line), made=line
            )
            for at, line in enumerate(lines)
        ]
        with story.step():
            change = GraphDiff(n, differences=differences, total=len(differences)) if n else None
            story.barrier(barrier, 8, f"size {new}", change=change)
    (finding,) = story.findings("recompile")
    return finding


def test_all_lines_that_grow_together_are_named() -> None:
    finding = grown("self.seen = torch.cat([self.seen, seen])", "self.said = torch.cat([self.said, said])")
    assert "The same graphs have self.said (line 21), which grows with it" in finding.advice
    assert 21 in [place.line for place in finding.also]
    assert "position = torch.arange(4, 8).to(device)" in finding.remedy
    assert "position = position + 4" in finding.remedy
    assert "grows with it" not in grown("self.seen = torch.cat([self.seen, seen])").advice


def test_a_slice_that_keeps_the_last_rows_makes_it_a_ring() -> None:
    finding = grown("self.bank = torch.cat([self.bank, rows], 0)[-self.capacity:]")
    assert "modulo self.capacity" in finding.advice
    assert "position = (position + 4) % self.capacity" in finding.remedy
    assert "torch.zeros(self.capacity, 8, " in finding.remedy
    plain = grown("self.bank = torch.cat([self.bank, rows], 0)[:, -3:]")
    assert "modulo" not in plain.advice, "another dimension's"


def cut(joins: str, cuts: str, *, again: bool = True, each: int = 16) -> Finding:
    """Keys of a momentum encoder, joined in each turn and cut to 64 at another line; the last graph comes again.

    ``again``: what is kept is a view of what was joined, which each graph slices; else a copy.
    """
    story = Story()
    barrier, joined = story.line(90, "torch_xla.sync()"), story.line(31, joins, func="Queue.push")
    kept = story.line(33, cuts, func="Queue.push")
    sizes = [*range(each, 64 + each * again, each), 64 + each * again, *[64 + each * again] * 20]
    came, made = (Operation("aten::slice", kept), joined) if again else (Operation("aten::cat", joined), kept)
    for n, (old, new) in enumerate(pairwise([sizes[0], *sizes])):
        one = Difference("shape", f"f32[{old},8]", f"f32[{new},8]", "self", came=came, expected=came, made=made)
        with story.step():
            story.barrier(barrier, 8, f"size {new}", change=GraphDiff(n, differences=[one], total=1) if n else None)
            story.spend(10)
    (finding,) = story.findings("recompile")
    return finding


@pytest.mark.parametrize(
    ("joins", "cuts", "again"),
    [
        ("keys = torch.cat([self.keys, new])", "self.keys = keys[-self.most:]", True),
        ("keys = torch.cat([new, self.keys]) if self.keys is not None else new", "self.keys = keys[:self.most]", True),
        ("self.keys = torch.cat((self.keys, new), dim=0)", "self.keys = self.keys[-self.most:, :].clone()", False),
        ("keys = torch.cat([keys, new])", "return keys[-most:]", True),
    ],
)
def test_a_slice_at_another_line_than_the_join_makes_it_a_ring_too(joins: str, cuts: str, again: bool) -> None:
    finding = cut(joins, cuts, again=again)
    assert "keeps the newest " in finding.advice
    assert "modulo 64" in finding.advice, "what is kept, and not what was joined"
    assert "begin with all 64 rows instead" in finding.advice
    assert "torch.zeros(64, 8, " in finding.remedy
    assert "position = torch.arange(0, 16).to(device)" in finding.remedy
    assert "position = (position + 16) % 64" in finding.remedy


def test_a_slice_that_takes_a_look_or_keeps_the_oldest_makes_no_ring() -> None:
    joins = "self.keys = torch.cat([self.keys, new])"
    assert "modulo" not in cut(joins, "latest = self.keys[-4:]").advice
    assert "modulo" not in cut(joins, "self.keys = self.keys[:, -64:]").advice, "another dimension's"
    assert "modulo" not in cut(joins, "self.keys = self.keys[:64]").advice, "the first ones stay"
    assert "modulo" not in cut(joins, "return self.keys[-1:]").advice, "the latest one is read"


def looped(*, evaluated: bool, barred: bool = False) -> Finding:
    """A barrier in the model, eight in each training step; with the evaluation's loop through the same line."""
    story = Story()
    inside = story.line(30, "torch_xla.sync()", func="Net.forward", outer=(60,), loops=(29, 55))
    end = story.line(62, "torch_xla.sync()", func="main", loops=(55,))
    there = story.line(30, "torch_xla.sync()", func="Net.forward", outer=(75,), loops=(29, 72))
    after = story.line(77, "torch_xla.sync()", func="main", loops=(72,))
    for _ in range(12):
        with story.step():
            for _ in range(8):
                story.barrier(inside, 0.01, "layer", ops=20, dispatch=4, compile=60)
            story.barrier(end, 1, "update", ops=300, compile=100)
    for _ in range(6 * evaluated):
        for _ in range(8):
            story.barrier(there, 0.01, "layer", ops=20, dispatch=4)
        story.read(story.line(76, "hits += score.item()", func="main", loops=(72,)))
        if barred:
            story.barrier(after, 0.1, "rest", ops=10)
    story.finish()
    return next(one for one in story.findings("excess_barriers") if one.place.line == 30)


def test_a_barrier_that_another_loop_lives_by_is_removed_with_a_word_on_that_loop() -> None:
    finding = looped(evaluated=True)
    assert "Remove this barrier" in finding.advice
    assert "The loop at line 72 has no other: call torch_xla.sync()" in finding.advice
    assert "has no other" not in looped(evaluated=True, barred=True).advice
    assert "has no other" not in looped(evaluated=False).advice


@pytest.mark.parametrize(("waits", "told"), [(40, True), (3, False)])
def test_slow_batches_are_judged_by_the_time_of_the_steps_however_long_a_cold_compile_is(
    waits: int, told: bool
) -> None:
    story = Story()
    train, score = story.line(50, "for x, y in loader:"), story.line(70, "for x, y in test:")
    made = story.line(12, "def __getitem__(self, i):", func="Leaves.__getitem__")
    story.emit(Look(story.now, 9_000_000_000, story.line(1, "import torch"), "import"))
    story.spend(9_000)
    start, func = story.now, story.text("forward")
    code = story.line(30, "def forward(self, x):", func="Net.forward")
    story.spend(90_000)
    story.emit(
        DynamoCompile(
            t=start, dur=story.now - start, compile="0/0", stack=train, code=code, func=func, ops=90, compiled=True
        )
    )
    for loop in (train, score):
        story.emit(Batches(story.now, loop, made, collated=False))
    for n in range(50):
        story.data(waits, score if n % 5 == 0 else train)
        story.spend(40)
    story.finish()
    found = story.findings("idle_gap")
    assert [(one.place.line, one.count) for one in found] == ([(12, 50)] if told else [])
    if found:
        assert "50% of the time that neither compiling nor imports took" in found[0].cause
        assert [place.line for place in found[0].also] == [70, 50]


def test_a_tensor_that_a_line_brings_once_is_padded_once_with_the_other_of_the_line() -> None:
    """Each client's windows and labels: brought to the device once, and used in two steps of each of its turns."""
    story = Story()
    barrier, made = story.line(90, "torch_xla.sync()"), story.line(24, "self.x, self.y = x.to(device), y.to(device)")
    reads = story.line(43, "return self.net(x)", func="Net.forward")
    loss = story.line(30, "F.cross_entropy(model(self.x), self.y).backward()")
    rows = (88, 72, 24, 40, 56)
    for n, (old, new) in enumerate(pairwise([rows[0], *rows])):
        for again in (False, True):
            windows = Difference(
                "shape", f"f32[{old},24]", f"f32[{new},24]", "self", came=Operation("aten::addmm", reads),
                made=0 if again else made, moved=not again,
            )  # fmt: skip
            labels = Difference(
                "shape", f"s64[{old}]", f"s64[{new}]", "target", came=Operation("aten::nll_loss_forward", loss),
                made=made, moved=True,
            )  # fmt: skip
            found = [windows] if again else [windows, labels]
            with story.step():
                change = GraphDiff(2 * n, differences=found, total=len(found)) if n else None
                story.barrier(barrier, 8, f"{new} rows, {again}", change=change)
    (finding,) = story.findings("recompile")
    assert finding.place.line == 24
    assert "Sizes vary together" not in finding.cause
    assert finding.remedy.count("x = torch.nn.functional.pad(x") == finding.remedy.count("y = torch.nn.functional") == 1


def test_a_condition_that_asks_the_number_which_is_special_is_named_with_it() -> None:
    """The last of the steps of a diffusion adds no noise: its number is 0, which is a part of the graph as well."""

    def advice(condition: str) -> str:
        story = Story()
        barrier, fill = story.line(89, "torch_xla.sync()"), story.line(82, "t = torch.full((n,), i, device=device)")
        asks, noise = story.line(86, condition), story.line(87, "x = x + torch.randn_like(x)")
        for n, (old, new) in enumerate(((2, 2), (2, 1), (1, 0))):
            number = Difference(
                "scalar", f"{old}", f"{new}", "fill_value", came=Operation("aten::full", fill), name="i"
            )
            gone = Block(old=[Operation("aten::randn", noise)], removed=4, roles={"": 4}, stack=noise, condition=asks)
            path = Difference("operation", "aten::randn", "aten::clamp", expected=gone.old[0], block=gone)
            found = [number, path] if not new else [number]
            with story.step():
                diff = GraphDiff(n, differences=found, total=len(found), removed=4 * (not new))
                story.barrier(barrier, 8, f"number {new}", change=diff if n else None)
        (finding,) = story.findings("recompile")
        return finding.advice

    assert "line 86 (`if i > 0:`) looks at i as well" in advice("if i > 0:")
    assert "looks at" not in advice("if noisy:")


@pytest.mark.parametrize(
    ("code", "begins"),
    [("return glow * falloff", "Pass falloff as a tensor"), ("return glow[:falloff]", "Compile with dynamic=True")],
)
def test_a_number_that_is_computed_with_is_a_tensor_before_all_sizes_are_made_dynamic(code: str, begins: str) -> None:
    """A renderer's falloff is another in each scene. Where it sizes something no tensor is advised."""
    compiling = Compiling()
    compiling.compile("0/0", 2_000)
    used = compiling.story.line(12, code, func="forward")
    compiling.recompile("0/1", Guard("value", "falloff", "3", "4", "falloff == 3", stack=used), ms=2_000)
    (finding,) = compiling.findings("recompile")
    assert finding.advice.startswith(begins)
    assert ("torch.tensor(falloff)" in finding.advice) == begins.startswith("Pass")
