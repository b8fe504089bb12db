"""What follows from what was seen of a program under each layer."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from xlaprof.doctor.ladder import read
from xlaprof.doctor.layers import LAYERS, Failure, Seen, results, verdicts

NAMES = [layer.name for layer in LAYERS]


def seen(*calls: float, failures: dict[int, Failure] | None = None) -> list[Seen]:
    """A program under every layer, one call of which takes ``calls`` seconds there."""
    return [
        Seen(
            name,
            took=1.0,
            calls=(10.0, *[call] * 39),
            graphs=2 * bool(n),
            failures=(failures[n],) if n in (failures or {}) else (),
        )
        for n, (name, call) in enumerate(zip(NAMES, calls, strict=False))
    ]


def test_a_program_that_is_the_same_everywhere_has_no_verdict() -> None:
    assert verdicts(seen(1.0, 1.0, 1.05, 1.0, 0.5, 0.7)) == []


def test_the_first_layer_at_which_it_fails_is_at_fault() -> None:
    crash = Failure("crash", "LoweringException: no such kernel", "model.py:31")
    wrong = Failure("numbers", "output 0 has a relative error of 0.3", "model.py:12", graph="folder")
    found = verdicts(seen(*[1.0] * 6, failures={3: wrong, 4: crash, 5: wrong}))
    assert [(one.what, one.layer) for one in found] == [("numbers", NAMES[3]), ("crash", NAMES[4])]
    assert found[0].text == f"The numbers are wrong under {NAMES[3]} at model.py:12: {wrong.text}."
    assert "decomposition" in found[0].remedy
    assert found[1].text == f"The program fails under {NAMES[4]} at model.py:31: {crash.text}."


@pytest.mark.parametrize(
    ("calls", "layer"),
    [
        ((1.0, 3.0, 3.1, 3.1, 3.0, 1.0), NAMES[1]),  # guards and breaks
        ((1.0, 1.0, 1.1, 1.1, 3.0, 1.0), NAMES[4]),  # the generated code
        ((1.0, 1.0, 2.0, 2.1, 1.3, 1.0), NAMES[2]),
    ],
)
def test_a_slow_call_is_laid_to_the_layer_that_adds_most_of_it(calls: tuple[float, ...], layer: str) -> None:
    (found,) = verdicts(seen(*calls))
    assert (found.what, found.layer) == ("slow", layer)
    assert "1.00 s without torch.compile" in found.text


def test_a_few_calls_say_nothing_of_the_time() -> None:
    few = [
        Seen(one.layer, took=1.0, calls=(9.0, 5.0, 5.0) if n else (1.0, 1.0, 1.0))
        for n, one in enumerate(seen(*[1.0] * 6))
    ]
    assert verdicts(few) == []


def written(folder: Path, *lines: object, torn: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "output.txt").write_text("step 1\nRuntimeError: the last line\n")
    (folder / "seen.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + torn)
    return folder


GRAPH = {"number": 0, "place": "a.py:1", "code": "", "compiling": 1.5, "operations": 3, "remark": ""}


def test_what_a_killed_process_had_written_counts(tmp_path: Path) -> None:
    folder = written(tmp_path, {"graph": GRAPH}, {"call": 2.0}, {"call": 0.5}, torn='{"call": 0.')
    one = read(NAMES[4], folder, 7.0, -signal.SIGKILL, limit=None)
    assert (one.calls, one.graphs, one.compiling, one.took) == ((2.0, 0.5), 1, 1.5, 7.0)
    assert [(failure.kind, failure.text) for failure in one.failures] == [
        ("memory", "it was killed, as systems do where memory runs out")
    ]
    assert results(one) == "out of memory"


def test_a_layer_that_takes_too_long_has_no_end(tmp_path: Path) -> None:
    one = read(NAMES[4], written(tmp_path, {"call": 2.0}), 60.0, -signal.SIGKILL, limit=60.0)
    assert [(failure.kind, failure.text) for failure in one.failures] == [("time", "it was ended after 60 s")]
    (found,) = verdicts([*seen(1.0), one])
    assert found.text == f"The program does not end in time under {NAMES[4]}: it was ended after 60 s."


def test_a_process_that_leaves_without_a_word_is_quoted(tmp_path: Path) -> None:
    one = read(NAMES[4], written(tmp_path), 1.0, 3, limit=None)
    assert [failure.text for failure in one.failures] == ["RuntimeError: the last line"]
    one = read(NAMES[4], written(tmp_path), 1.0, -signal.SIGSEGV, limit=None)
    assert [failure.text for failure in one.failures] == ["it was ended by SIGSEGV"]


def test_an_error_of_memory_is_one_wherever_it_is_raised(tmp_path: Path) -> None:
    text = "RuntimeError: [enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"
    end = {"took": 1.0, "code": 1, "error": text, "place": "train.py:9", "breaks": 0, "peak": 1 << 30}
    one = read(NAMES[4], written(tmp_path, {"end": end}), 1.0, 1, limit=None)
    assert [(failure.kind, failure.place) for failure in one.failures] == [("memory", "train.py:9")]


def test_what_the_program_could_do_without_is_no_failure(tmp_path: Path) -> None:
    """Dynamo's suppress_errors runs in PyTorch what a backend cannot compile."""
    failure = {"kind": "crash", "text": "LoweringException: no such kernel"}
    end = {"took": 1.0, "code": 0, "error": "", "place": "", "breaks": 1, "peak": 0}
    assert read(NAMES[4], written(tmp_path, {"failure": failure}, {"end": end}), 1.0, 0, limit=None).failures == ()
    bad = {**end, "code": 1, "error": "BackendCompilerFailed"}
    one = read(NAMES[4], written(tmp_path, {"failure": failure}, {"end": bad}), 1.0, 1, limit=None)
    assert [failure.text for failure in one.failures] == ["LoweringException: no such kernel"]


def test_numbers_are_right_only_where_all_graphs_were_compared(tmp_path: Path) -> None:
    end = {"took": 1.0, "code": 0, "error": "", "place": "", "breaks": 1, "peak": 0}
    one = read(NAMES[4], written(tmp_path, {"graph": GRAPH}, {"end": end}), 1.0, 0, limit=None)
    assert (one.numbers, results(one), one.breaks) == ("right", "same numbers", 1)
    unknown = {**GRAPH, "remark": "64 graphs were checked"}
    one = read(NAMES[4], written(tmp_path, {"graph": GRAPH}, {"graph": unknown}, {"end": end}), 1.0, 0, limit=None)
    assert (one.numbers, results(one), one.unchecked) == ("unknown", "runs", ("64 graphs were checked",))
