"""Reads that end a graph of their own each, and what a library has compiled again: where it is long it is told."""

from __future__ import annotations

import pytest
from story import Story

from xlaprof.analysis.model import Account, Report
from xlaprof.events import Change

CLIP = ("/venv/lib/python3.11/site-packages/somelib/clip.py", 31, "clip", "grad.mul_(scale)", 30)
PACK = ("/venv/lib/python3.11/site-packages/somelib/pack.py", 12, "Packer.pack", "out.mul_(scale)", 0)


def compiling(report: Report) -> Account:
    (account,) = (account for account in report.accounts if account.what == "compile")
    return account


@pytest.mark.parametrize(("steps", "graphs"), [(1, 11), (6, 12)])
def test_reads_in_a_loop_over_tensors_own_the_graph_that_each_compiles_whatever_differs_in_it(
    steps: int, graphs: int
) -> None:
    """A run that ends in its first step, and one of more: what a library did to each gradient differs between them."""
    story = Story()
    batch = story.line(9, "for x in loader:", func="main", loops=(9,))
    norm = story.line(21, "norms.append(p.grad.norm().item())", func="watch", outer=(14,), loops=(20, 9))
    clipped = story.line(12, "trainer.clip(model)", func="main", loops=(9,), library=(CLIP,))
    for _ in range(steps):
        story.barrier(batch, 1, "batch", compile=100, ops=2, trigger="loader")
        for n in range(12):
            before = Change("aliasing", "the same tensor as elsewhere", "another tensor", "self of aten::mul_",
                            stack=clipped, expected=clipped, against=n + 1, role="clip")  # fmt: skip
            story.trace(1)
            graph = f"up to norm {n}"
            story.compile(graph, 2_000, norm, before if n else None, "read", ops=260, again=160)
            story.execute(graph, 4, norm, "read")
            story.read(norm)
    story.finish()
    report = story.report()
    (finding,) = report.findings
    assert (finding.kind, finding.place.line, finding.count) == ("transfer", 21, 12 * steps)
    assert finding.cost_s > 11 * 2
    assert f"as {graphs} graphs of its own that took {2 * graphs}.0 s to compile" in finding.cause
    account = compiling(report)
    assert account.explained_s == pytest.approx(2 * graphs)
    assert "somelib" not in account.text


@pytest.mark.parametrize(("took", "told"), [(2_500, True), (100, False)])
def test_what_a_library_has_compiled_again_is_normal_only_where_it_is_short(took: float, told: bool) -> None:
    story = Story()
    barrier = story.line(16, "torch_xla.sync()", func="main", loops=(9,))
    packed = story.line(12, "packer.pack(out)", func="main", loops=(9,), library=(PACK,))
    for n in range(24):
        change = Change("operation", "aten::mul_", "aten::add_", "the next operation", stack=packed, expected=packed,
                        added=3, removed=2, against=n)  # fmt: skip
        story.trace(40)
        story.barrier(barrier, 30, f"graph {n % 6}", compile=took, change=change if n % 6 else None)
    story.finish()
    report = story.report()
    assert [finding.place.acting.line for finding in report.findings] == [12] * told
    assert ("normal: somelib's own" in compiling(report).text) is not told
    if told:
        assert report.findings[0].advice.endswith(
            "The line is somelib's own: what it is given, and how often it is called, is the program's to choose."
        )


@pytest.mark.parametrize(("line", "path"), [(20, False), (26, True)])
def test_a_number_that_is_read_before_it_is_used_in_a_turn_is_a_constant_and_one_read_later_decides(
    line: int, path: bool
) -> None:
    """Both graphs have rows 1 and 3 of the table: which is used was read before it was taken out, or afterwards."""
    story = Story()
    read = story.line(line, "k = int(best)", func="main", loops=(18, 9))
    row = story.line(23, "out = out + table[k]", func="main", loops=(18, 9))
    barrier = story.line(30, "torch_xla.sync()", func="main", loops=(9,))
    for n in range(24):
        used = [f"aten::select (index {index})" for index in (1, 3)[:: 1 if n % 2 else -1]]
        change = Change("operation", *used, "what is used", read, row, against=n)
        with story.step():
            story.trace(1)
            story.read(read)
            story.barrier(barrier, 4, f"graph {n % 6}", 300, change=change if n % 6 else None)
    story.finish()
    (finding,) = story.findings("recompile")
    assert ("nother path" in finding.cause) is path
    assert finding.place.line == (line if path else 23)
    assert ("index of aten::select" in finding.cause and "is a constant of the graph" in finding.cause) is not path
