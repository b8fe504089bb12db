"""The zoo's truths name existing lines, the scoring follows its rule, and the diagnosis finds the truths."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from xlaprof.analysis.findings import names

from .truth import Story, Truth, score, stories, wrong

ROOT = Path(__file__).parent.parent.parent
STORIES = list(stories(Path(__file__).parent))
OWN = [story for story in STORIES if story.path.parent.name == "own" and not story.name.endswith("_fixed")]

#: scored in the fast suite too: a program that needs little time
FAST = {"dynamo_print_in_block"}


def finding(kind: str = "recompile", line: int = 7, **fields: Any) -> dict[str, Any]:
    """A finding as the report's JSON has it."""
    nothing = {"file": "/somewhere/model.py", "cause": "", "advice": "", "operation": "", "change": None, "remedy": ""}
    return {**nothing, "kind": kind, "line": line, **fields}


def truth(kind: str = "recompile", line: int = 7, **fields: Any) -> Truth:
    nothing: dict[str, Any] = {"also_ok": (), "cause": "", "change": None, "idea": "", "source": ""}
    return Truth(**{**nothing, "kind": kind, "line": line, **fields})


def changed(what: str, old: object, new: object) -> dict[str, Any]:
    return {"what": what, "from": str(old), "to": str(new)}


def story(*truths: Truth, acceptable: tuple[Truth, ...] = ()) -> Story:
    return Story(Path("/here/model.py"), truths, acceptable)


@pytest.mark.parametrize("told", STORIES, ids=lambda told: told.name)
def test_truths_name_lines_of_their_program(told: Story) -> None:
    lines = told.path.read_text().splitlines()
    for one in (*told.truths, *told.acceptable):
        assert lines[one.line - 1].strip() == one.source
        assert all(lines[line - 1].strip() for line in one.also_ok)
        assert one.kind in {*names(), "recompile_limit"}


#: kinds that programs of JAX alone have, or that are tested with them
OF_JAX = {"unrolled_loop", "op_by_op", "device_wait", "donation", "host_callback", "repeated_work"}
#: a graph that takes minutes, what a program asks for, what needs a GPU, what runs for seconds without a device
TESTED_ELSEWHERE = {"compile_cost", "frozen", "cuda_graph", "uncompiled"}


def test_the_zoo_shows_every_kind_and_has_clean_programs_too() -> None:
    seen = Counter(one.kind for told in OWN for one in told.truths)
    assert set(names()) - TESTED_ELSEWHERE - OF_JAX <= set(seen)
    assert len(OWN) >= 40
    assert sum(not told.truths for told in OWN) >= 8
    fixed = {told.name for told in STORIES}
    assert {f"{told.name}_fixed" for told in OWN if told.truths} <= fixed


def test_a_finding_counts_when_kind_line_and_file_are_the_truths() -> None:
    one = truth("transfer", 7, also_ok=(9,))
    assert not wrong(one, finding("transfer", 7), story())
    assert not wrong(one, finding("transfer", 9), story())
    assert wrong(one, finding("idle_gap", 7), story()) == "kind"
    assert wrong(one, finding("transfer", 8), story()) == "line"
    assert wrong(one, finding("transfer", 7, file="/somewhere/other.py"), story()) == "line"


@pytest.mark.parametrize(
    ("wanted", "got", "right"),
    [
        (("input shape", "[32, 16]", "[8, 16]"), ("shape", "f32[32,16]", "f32[8,16]"), True),
        (("input shape", "[32, 16]", "[8, 16]"), ("shape", "f32[32]", "f32[8]"), True),
        (("input shape", "[32, 16]", "[8, 16]"), ("shape", "f32[32,16]", "f32[24,16]"), False),
        (("input shape", "[32, 16]", "[8, 16]"), ("operation", "aten::add", "aten::mul"), False),
        (("input shape", "[1, 4]", "[1, 5]"), ("shape", "s64[1,4]", "s64[1,6]"), False),
        (("input rank", "[1, 3, 8]", "[3, 8]"), ("shape", "f32[1,3,8]", "f32[3,8]"), True),
        (("input rank", "[1, 3, 8]", "[3, 8]"), ("shape", "f32[1,3,8]", "f32[1,3,9]"), False),
        (("number of selected positions", "65", "63"), ("size", "65", "63"), True),
        (("number of selected positions", "65", "63"), ("shape", "f32[65,7]", "f32[63,7]"), True),
        (("number of selected positions", "65", "63"), ("size", "65", "64"), False),
        (("python scalar, 0-or-1 special (lr)", "0.8", "1.0"), ("scalar", "0.8", "1"), True),
        (("python scalar, 0-or-1 special (lr)", "0.8", "1.0"), ("scalar", "-0.8", "-1.0"), False),
        (("python scalar, 0-or-1 special (lr)", "0.8", "1.0"), ("scalar", "scalar input f0", "1.0"), False),
        (("python constant (k of topk)", "8", "4"), ("argument", "8", "4"), True),
        (("input dtype", "int64", "int32"), ("dtype", "s64[8,6]", "s32[8,6]"), True),
        (("input dtype", "int64", "int32"), ("dtype", "s64[8,6]", "f32[8,6]"), False),
        (("guard on a Python string (name)", "'a'", "'b'"), ("constant", "name == 'a'", "'b'"), True),
        (("control flow", "(step+1) % 4 != 0", "(step+1) % 4 == 0"), ("operation", "barrier", "aten::add_"), True),
        (("control flow", "(step+1) % 4 != 0", "(step+1) % 4 == 0"), ("dtype", "f32", "f16"), False),
        (("sync placement", "torch_xla.sync", "loss.item()"), ("barrier", "the barrier", "this read"), True),
        (("live outputs at the barrier", "1", "2"), ("outputs", "13 live outputs", "14 live outputs"), True),
    ],
)
def test_a_change_has_the_truths_values_or_its_sort(
    wanted: tuple[str, str, str], got: tuple[str, str, str], right: bool
) -> None:
    found = wrong(truth(change=wanted), finding(change=changed(*got)), story())
    assert found == ("" if right else "change")


def test_a_truth_with_a_change_is_not_met_by_a_finding_without_one() -> None:
    assert wrong(truth(change=("input shape", "[4]", "[5]")), finding(), story()) == "change"


def test_a_fallback_names_its_operator() -> None:
    one = truth("fallback", cause="runs aten::nonzero on the CPU")
    assert not wrong(one, finding("fallback", operation="aten::nonzero"), story())
    assert not wrong(one, finding("fallback", cause="a non_zero that the host counts"), story())
    assert wrong(one, finding("fallback", operation="aten::unique2"), story()) == "idea"


def test_an_idea_is_looked_for_in_what_the_finding_says() -> None:
    one = truth("graph_break", idea="branch|condition")
    assert not wrong(one, finding("graph_break", cause="a Branch on a tensor"), story())
    assert wrong(one, finding("graph_break", cause="a print"), story()) == "idea"


def test_truths_and_findings_are_paired_one_to_one() -> None:
    both = truth("recompile", 7, change=("lr", "0.0", "0.2")), truth("recompile", 7, change=("lr", "0.8", "1.0"))
    first = finding(change=changed("scalar", 0.0, 0.2))
    second = finding(change=changed("scalar", 0.8, 1.0))
    assert len(score(story(*both), [second, first]).met) == 2
    half = score(story(*both), [first])
    assert half.missed == [both[1]]
    assert not half.alarms


def test_pairs_are_moved_to_make_room() -> None:
    wide, narrow = truth("transfer", 7, also_ok=(9,)), truth("transfer", 7)
    at = {line: finding("transfer", line) for line in (7, 9)}
    found = score(story(wide, narrow), [at[7], at[9]])
    assert not found.missed
    assert [(one.also_ok, f["line"]) for one, f in found.met] == [((9,), 9), ((), 7)]


def test_a_selection_and_its_gradient_are_two_mistakes_and_one_finding() -> None:
    both = truth("fallback", 7), truth("fallback", 8)
    one = {**finding("fallback", 7), "also": [{"file": finding("fallback", 7)["file"], "line": 8}]}
    assert len(score(story(*both), [one]).met) == 2
    assert score(story(both[0]), [one]).alarms == []
    assert score(story(both[1]), [one]).alarms == [one]
    transfer = {**one, "kind": "transfer"}
    assert len(score(story(truth("transfer", 7), truth("transfer", 8)), [transfer]).met) == 1


def test_what_is_right_twice_is_repeated_and_all_else_is_a_false_alarm() -> None:
    one = truth("transfer", 7)
    twice, elsewhere, fine = finding("transfer", 7), finding("transfer", 8), finding("idle_gap", 7)
    found = score(story(one, acceptable=(truth("idle_gap", 7),)), [twice, twice, elsewhere, fine])
    assert len(found.met) == 1
    assert found.repeated == [twice]
    assert found.alarms == [elsewhere]
    assert found.accepted == [fine]
    assert score(story(), [twice]).alarms == [twice]


def _scored(name: str) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "diagnosis.py"), name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(told.name, marks=[] if told.name in FAST else [pytest.mark.slow])
        for told in STORIES
        if not told.name.endswith("_fixed")
    ],
)
def test_the_diagnosis_finds_the_truth_and_nothing_else(name: str) -> None:
    _scored(name)


def test_the_page_publishes_the_first_runs_on_unseen_programs() -> None:
    root = Path(__file__).parents[2]
    assert (root / "benchmarks" / "unseen.md").read_text() in (root / "docs" / "diagnosis.md").read_text()


def test_each_round_of_the_page_has_its_text() -> None:
    benchmarks = Path(__file__).parents[2] / "benchmarks"
    page = (benchmarks / "unseen.md").read_text()
    texts = (benchmarks / "unseen" / "rounds.md").read_text()
    rounds = [f"Round {letter}" for letter in re.findall(r"^\| ([A-Z]+), first run ", page, re.MULTILINE)]
    of_jax = [f"JAX, {number} round" for number in re.findall(r"^\| (\w+) round, first run ", page, re.MULTILINE)]
    assert rounds
    assert of_jax
    assert not [title for title in (*rounds, *of_jax) if f"\n## {title}\n" not in texts]
