"""Whatever a log holds: no door fails, none hangs, what is shown stays in proportion, and nothing is lost silently."""

from __future__ import annotations

from pathlib import Path

import pytest

from .doors import DOORS, Calls, go_through, most_output
from .mutate import decode, encode, huge, mutated, slots, valid
from .sweep import sweep

_CALLS = 300_000  # of functions: a reader that does not know the log's end would make many more


def test_damaged_logs_pass_through_every_door() -> None:
    done = sweep(range(400), list(DOORS))
    assert not done.failures, "\n\n".join(map(str, done.failures.values()))
    assert done.codes[0] > 100, "most logs are still logs"
    assert done.codes[2] > 10, "some are not"


def test_the_same_log_passes_through_all_doors() -> None:
    done = sweep(range(1_000, 1_025), list(DOORS), every_door=True)
    assert not done.failures, "\n\n".join(map(str, done.failures.values()))
    assert done.runs == 25 * len(DOORS)


@pytest.fixture
def logs(tmp_path: Path) -> tuple[Path, Path]:
    other = tmp_path / "other.log"
    other.write_bytes(b"\n".join(valid()[0]) + b"\n")
    return tmp_path / "run.log", other


def test_a_text_or_list_of_any_length_costs_no_more_than_a_long_one(logs: tuple[Path, Path]) -> None:
    log, other = logs
    go_through("report --json", other, other, "80")  # imports
    for what, data in list(huge(100_000))[::8]:  # of some hundred
        log.write_bytes(data)
        with Calls() as calls:
            outcome = go_through("report --json", log, other, "80")
        # 4,096 scopes of a digest are listed, or findings at as many lines; 4,096 frames of a stack are resolved
        assert calls.count < _CALLS * {"digest": 40, "stack": 2}.get(what.partition(" ")[0], 1), what
        assert len(outcome.output) < most_output(data), what
        assert "cut texts or lists" in outcome.output or "values that cannot be" in outcome.output, what


@pytest.mark.parametrize(
    "door", ["report", "explain", "compare", "check --github", "live", "export", "xlaprof.report()"]
)
def test_names_of_a_million_characters_are_shown_shortened(door: str, logs: tuple[Path, Path]) -> None:
    log, other = logs
    lines = []
    for line in valid()[0]:
        event = decode(line)
        assert event is not None
        if event["k"] == "text":
            event["text"] += " x" * 50_000
        lines.append(encode(event))
    log.write_bytes(b"\n".join(lines) + b"\n")
    go_through(door, other, other, "80")
    with Calls() as calls:
        outcome = go_through(door, log, other, "80")
    assert calls.count < 50 * _CALLS  # the screen highlights code
    assert len(outcome.output) < 1_500_000


def test_one_number_makes_one_log() -> None:
    assert mutated(7) == mutated(7)
    assert len({mutated(seed) for seed in range(50)}) > 40


def test_a_mutation_reaches_every_field() -> None:
    event = decode(valid()[0][0])
    assert event is not None
    assert {key for _, key in slots(event)} >= {"pid", "argv", "torch", 0}
