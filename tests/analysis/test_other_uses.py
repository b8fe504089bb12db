"""Versions of a compiled function for another object, another use or another thread, and those that fail."""

from __future__ import annotations

from itertools import pairwise

import pytest

from analysis.compiling import Compiling, shape
from xlaprof.events import DynamoLimit, End, Guard


def value(name: str, old: object, new: object) -> Guard:
    return Guard("value", name, f"{old}", f"{new}", f"{name} == {old}")


def members(each_ms: float, others_ms: float = 8_000) -> Compiling:
    """An ensemble: the forward of each member selects other columns."""
    compiling = Compiling()
    compiling.compile("0/0", each_ms)
    for i in range(1, 6):
        compiling.recompile(f"0/{i}", value("self.columns[0]", i, i + 3), value("self.columns[1]", i, i + 4),
                            ms=each_ms, fresh=True)  # fmt: skip
    compiling.story.spend(others_ms)
    compiling.story.finish()
    return compiling


def test_objects_of_which_only_python_values_differ_share_no_version_and_that_is_told_where_it_is_dear() -> None:
    (finding,) = members(900).findings()
    assert (finding.kind, finding.count, finding.cost_s) == ("recompile", 5, pytest.approx(4.5))
    assert "is another in each object of the class" in finding.cause
    assert "one tensor of self.columns" in finding.advice
    assert members(100).findings() == [], "a twentieth of the run"


def test_two_numbers_that_change_once_each_are_no_values_that_come_back() -> None:
    compiling = Compiling()
    compiling.compile("0/0")
    compiling.recompile("0/1", value("left", 0, 2))
    compiling.recompile("0/2", value("top", 0, 2), against="0/1")
    assert sum(finding.count for finding in compiling.findings()) == 2


def test_a_line_of_its_own_in_another_mode_is_another_use_though_the_function_hits_a_limit_later() -> None:
    compiling = Compiling()
    compiling.compile("0/0")
    sample = compiling.story.line(60, "guess = fast(x, t.item())", func="sample")
    compiling.recompile("0/1", Guard("mode", "grad_mode", "True", "False"), stack=sample)
    for i in range(2, 8):
        compiling.recompile(f"0/{i}", value("t", f"{i}.5", f"{i + 1}.5"), stack=sample)
    limit = DynamoLimit(t=compiling.story.now, compile="0/7", func=compiling.func, stack=sample, value=8,
                        code=compiling.code)  # fmt: skip
    compiling.story.emit(limit)
    (finding,) = compiling.findings()
    assert "t, a constant of the graph, changed" in finding.cause
    assert finding.advice.startswith("Pass the tensor, t, in place of t.item(), where what is called takes one. Else: ")


def test_a_setting_of_pytorch_that_is_switched_is_no_other_use() -> None:
    compiling = Compiling()
    compiling.compile("0/0")
    trial = compiling.story.line(60, "act(x)", func="trial")
    compiling.recompile("0/1", Guard("mode", "deterministic_algorithms", "False", "True"), stack=trial)
    (finding,) = compiling.findings()
    assert "deterministic_algorithms changed" in finding.cause


def test_what_two_threads_compile_at_once_has_no_guard_that_fails() -> None:
    compiling = Compiling()
    compiling.compile("0/0")
    between = "Unexpected recompilation: runtime guards failed even though they passed during the analysis"
    compiling.recompile("0/1", Guard("guard", text=between))
    assert compiling.findings() == []
    compiling.recompile("0/2", Guard("guard", text="some other guard"))
    assert len(compiling.findings()) == 1


@pytest.mark.parametrize("ended", [False, True])
def test_what_fails_to_compile_and_runs_as_plain_python_is_told_unless_it_ended_the_program(ended: bool) -> None:
    compiling = Compiling()
    reason = "its compilation fails (There was no fake impl registered for <CustomOpDef(optics::dither)>)"
    compiling.broke("0/0", 15, reason, skipped=True, hint="Give the operator a fake.")
    compiling.compile("0/0", 300, ops=0, compiled=False, fail="TorchRuntimeError", restarted=250_000_000)
    compiling.story.emit(End(t=compiling.story.now, error="TorchRuntimeError" if ended else ""))
    found = compiling.findings()
    assert len(found) == (not ended)
    for finding in found:
        assert (finding.kind, finding.place.line) == ("graph_break", 15)
        assert f"all of it runs as plain Python: {reason};" in finding.cause
        assert finding.advice == "Give the operator a fake."
    charges = {charge.what for charge in compiling.story.report().torch_compile.charges}
    assert ("failed" in charges) is ended


def test_a_layout_of_its_own_is_told_whatever_object_it_is_of() -> None:
    """The first block gets what an embedding hands over transposed: the others would share its version."""
    compiling = Compiling()
    compiling.compile("0/0")
    layout = Guard("stride", "hidden", "1", "32", "tensor 'hidden' stride mismatch at index 1", 1)
    sample = compiling.story.line(60, "guess = fast(x)", func="sample")
    compiling.recompile("0/1", layout, fresh=True)
    compiling.recompile("0/2", layout, stack=sample, against="0/0")
    (finding,) = compiling.findings()
    assert finding.count == 2
    assert "Call hidden.contiguous() (where dimension 1 has the size 1, hidden.clone(" in finding.advice


def test_buckets_that_dynamic_false_has_compiled_one_by_one_are_meant() -> None:
    def sizes(*of: int) -> Compiling:
        compiling = Compiling()
        compiling.compile("0/0")
        for i, (old, new) in enumerate(pairwise(of), 1):
            compiling.recompile(f"0/{i}", shape(old, new), dynamic="False")
        return compiling

    assert sizes(16, 32, 64).findings() == []
    assert sizes(16, 33, 64).findings() == [], "three of any kind"
    assert len(sizes(16, 33, 64, 100).findings()) == 1
    assert sizes(16, 32, 64, 128).findings() == []


def test_a_tensor_that_was_passed_twice_is_told_with_the_call_that_did() -> None:
    compiling = Compiling()
    compiling.compile("0/0", stack=compiling.story.line(59, "fast(blank, blank)", func="warm_up"))
    compiling.recompile("0/1", Guard("aliasing", "ids, mask", "the same tensor", "different tensors", "ids is mask"),
                        against="0/0")  # fmt: skip
    (finding,) = compiling.findings()
    assert "The inputs ids, mask are different tensors now, and were one in an earlier call" in finding.cause
    assert 59 in [place.line for place in finding.also]
    assert "in a warm-up too" in finding.advice


@pytest.mark.parametrize("tokens", [6, 1])
def test_a_version_for_what_had_one_already_is_told_by_what_the_next_differs_in(tokens: int) -> None:
    """Captions are written behind a training: the first token has a version of its own, with the cache's first length.
    The second is compared with the training's, from which it differs by the same; the third, with the second."""
    compiling = Compiling()
    compiling.compile("0/0")
    write = compiling.story.line(60, "word = fast(x, cache)", func="write")
    of_use = Guard("mode", "grad_mode", "True", "False"), value("caches", False, True), shape(32, 1)
    for i in (1, 2):
        compiling.recompile(f"0/{i}", *of_use, stack=write, against="0/0", dynamic="False")
    for i in range(3, 2 + tokens):
        grown = Guard("shape", "cache.keys", f"f32[1,{28 + i}]", f"f32[1,{29 + i}]", "size mismatch", 1)
        compiling.recompile(f"0/{i}", grown, stack=write, against=f"0/{i - 1}", dynamic="False")
    (finding,) = compiling.findings()
    assert (finding.place.line, finding.count) == (60, tokens)
    assert ("The shape of cache.keys changed" in finding.cause) is (tokens == 6)
    assert ("grad_mode" in finding.cause) is (tokens == 1), "where nothing follows, what is known is told"
