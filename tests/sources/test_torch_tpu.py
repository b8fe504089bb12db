"""TorchTPU's batches in a report, from logs made by the schema of torch-tpu 0.2.0 (:mod:`tests.sources.tpu_logs`).

No TPU was at hand: what TorchTPU writes there was read from its sources and its library, and never seen.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

import xlaprof
from tests.sources import tpu_logs
from tests.sources.tpu_logs import batch, graph
from xlaprof import cli
from xlaprof.analysis.model import Report
from xlaprof.analysis.run import Run
from xlaprof.analysis.torch_tpu.words import cut, put_off
from xlaprof.events import Dropped, Source, TorchTpuBatch
from xlaprof.log import LogError
from xlaprof.pages.terminal import render
from xlaprof.recording.stacks import RawFrame
from xlaprof.reports import fold
from xlaprof.sources.torch_tpu import FILE
from xlaprof.sources.torch_tpu.batches import Batches
from xlaprof.sources.torch_tpu.graphs import Known, parsed

ROOT = Path(__file__).parents[2]


def training() -> list[tpu_logs.Record]:
    """Twenty steps: each reads a loss behind line 13, and ends a backward pass; some have a batch of another size."""
    records = batch("item()", hit=False, ms=400) + batch("autograd_post_backward", hit=False, at_ms=500, ms=800)
    for step in range(20):
        at = 2_000 + 100 * step
        if step in (5, 9, 14):
            text = graph("item()", f"{step},4")
            records += batch("item()", hit=False, at_ms=at, ms=300, text=text)
        else:
            records += batch("item()", at_ms=at)
        records += batch(".cpu()", at_ms=at + 20) if step % 2 else []
        records += batch("autograd_post_backward", at_ms=at + 50)
    return records


def reported(text: str | bytes, path: Path) -> Report:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    run, notes = fold(str(path))
    return run.report(str(path), notes)


def page(report: Report) -> str:
    out = io.StringIO()
    Console(file=out, width=100).print(render(report, 100))
    return out.getvalue()


def test_a_file_of_another_process_has_its_batches_hits_and_reasons_told(tmp_path: Path) -> None:
    report = reported(tpu_logs.file(training()), tmp_path / "dedicated_log_torch_trace_x.log")
    done = report.torch_tpu
    assert (done.batches, done.cached, done.made, done.failed) == (52, 47, 5, 0)
    assert done.compile_s == pytest.approx(2.1)
    assert [(one.reason, one.count) for one in done.reasons] == [
        ("item()", 21),
        ("autograd_post_backward", 21),
        (".cpu()", 10),
    ]
    item = done.reasons[0]
    assert (item.what, item.cached, item.compile_s) == ("a value was read", 17, pytest.approx(1.3))
    [place] = item.places
    assert (place.file, place.line, place.func) == ("/home/me/train.py", 13, "step")
    assert done.text.startswith("60% of the batches were cut because the host read a value. Keep values on the device")
    assert report.run.notes == ()
    assert report.observed
    assert report.run.wall_s == pytest.approx(3.951)  # from the first batch to the end of the last


def test_a_line_for_which_programs_are_made_again_is_a_finding_from_what_to_what(tmp_path: Path) -> None:
    report = reported(tpu_logs.file(training()), tmp_path / "trace.log")
    [finding] = [one for one in report.findings if one.kind == "recompile"]
    assert (finding.place.file, finding.place.line, finding.count) == ("/home/me/train.py", 12, 3)
    assert finding.cost_s == pytest.approx(0.9)
    assert finding.change is not None
    assert finding.change.old == "v0 = MatMul(in0: f32[8,4], in1: f32[4,4])"
    assert finding.change.new == "v0 = MatMul(in0: f32[5,4], in1: f32[4,4])"
    assert finding.counted is not None
    assert len(list(finding.counted.among([]))) == finding.count


def test_a_program_made_twice_more_is_none(tmp_path: Path) -> None:
    records = [
        one for size in (4, 5, 6) for one in batch(hit=False, at_ms=100 * size, text=graph("item()", f"{size},4"))
    ]
    assert reported(tpu_logs.file(records), tmp_path / "trace.log").findings == ()


def test_the_page_and_the_json_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.log"
    report = reported(tpu_logs.file(training()), path)
    said = page(report)
    assert "52 batches of operations: 47 found in its cache, 5 compiled in 2.10 s" in said
    assert "autograd_post_backward" in said
    assert "mostly behind train.py:13" in said
    assert cli.main(["report", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["torch_tpu"]
    assert (told["batches"], told["cached"], told["failed"]) == (52, 47, 0)
    assert told["reasons"][0]["places"][0]["line"] == 13
    assert cli.main(["report", str(path), "--html", str(tmp_path / "page.html")]) == 0
    (found,) = re.findall(r'id="data">(.*?)</script>', (tmp_path / "page.html").read_text(), re.DOTALL)
    shown = json.loads(found)["torch_tpu"]
    assert (shown["count"], shown["text"]) == (52, report.torch_tpu.text)
    assert shown["note"] == put_off(report.torch_tpu)
    assert [(one["reason"], one["count"], one["facts"]) for one in shown["rows"]] == [
        (one.reason, one.count, cut(one)) for one in report.torch_tpu.reasons
    ]


def test_few_reads_are_told_without_advice(tmp_path: Path) -> None:
    records = [one for at in range(9) for one in batch("distributed_op", at_ms=at)] + batch("item()", at_ms=10)
    done = reported(tpu_logs.file(records), tmp_path / "trace.log").torch_tpu
    assert done.text == ""
    assert [one.what for one in done.reasons] == ["processes exchange data", "a value was read"]


def test_what_failed_is_neither_found_nor_made(tmp_path: Path) -> None:
    records = batch(hit=False) + batch(hit=False, failed=True, ms=50, at_ms=10)
    report = reported(tpu_logs.file(records), tmp_path / "trace.log")
    assert (report.torch_tpu.cached, report.torch_tpu.made, report.torch_tpu.failed) == (0, 1, 1)
    assert "1 failed" in page(report)


def test_reports_of_two_processes_add_up(tmp_path: Path) -> None:
    runs = []
    for rank in range(2):
        path = tmp_path / f"rank_{rank}.log"
        path.write_text(tpu_logs.file(training()))
        runs.append(fold(str(path))[0])
    whole = runs[0]
    whole.merge(runs[1])
    report = whole.report()
    assert report.torch_tpu.batches == 104
    assert [one.count for one in report.torch_tpu.reasons] == [42, 42, 20]
    assert [place.line for place in report.torch_tpu.reasons[0].places] == [13]
    assert [one.count for one in report.findings if one.kind == "recompile"] == [6]


def test_the_folder_will_do_where_it_has_one_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "dedicated_log_torch_trace_rank_0_a.log").write_text(tpu_logs.file(training()))
    assert cli.main(["report", str(tmp_path)]) == 0
    assert "52 batches" in capsys.readouterr().out
    (tmp_path / "dedicated_log_torch_trace_rank_1_b.log").write_text(tpu_logs.file(training()))
    assert cli.main(["report", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"xlaprof: {tmp_path} has 2 logs of TORCH_TRACE: name one of them, as {tmp_path}/dedicated")
    assert said.count("\n") == 1


def test_beside_recordings_it_is_no_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "dedicated_log_torch_trace_a.log").write_text(tpu_logs.file(training()))
    assert FILE.recognises(str(tmp_path), b"")
    (tmp_path / "run.0.log").write_bytes(b"")
    assert not FILE.recognises(str(tmp_path), b"")


def test_what_torch_compile_itself_writes_is_no_damage(tmp_path: Path) -> None:
    program = 'import torch; torch.compile(lambda x: x.sin(), backend="aot_eager")(torch.ones(3))'
    env = {**os.environ, "TORCH_TRACE": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=env, cwd=tmp_path, check=True, timeout=120)
    run, notes = fold(str(tmp_path))
    report = run.report(str(tmp_path), notes)
    assert (report.torch_tpu.batches, report.observed) == (0, False)
    [note] = report.run.notes
    assert "records of torch.compile left out" in note


# -- damage


def test_records_of_others_are_left_out_and_said(tmp_path: Path) -> None:
    others: list[tpu_logs.Record] = [
        ({"dynamo_start": {"stack": []}, "frame_id": 0}, None),
        ({"chromium_event": {}}, '{"name": "dynamo", "ph": "B", "ts": 1.0, "args": {}}'),
        ({"artifact": {"name": "dynamo_graph_break_reason"}, "frame_id": 0}, "Graph break\nhere"),
    ]
    report = reported(tpu_logs.file(others + batch()), tmp_path / "trace.log")
    assert report.torch_tpu.batches == 1
    [note] = report.run.notes
    assert note.startswith("2 records of torch.compile left out: xlaprof run has it explained")


@pytest.mark.parametrize(
    ("spoil", "batches"),
    [
        ({"ts": "now"}, 1), ({"ts": -1}, 1), ({"ts": 1e300}, 1), ({"dur": None}, 1), ({"args": 3}, 1),
        ({"args": {"cache_hit": "yes"}}, 1), ({"ph": "B"}, 1), ({"name": ["x"]}, 1),
    ],
)  # fmt: skip
def test_a_moment_that_cannot_be_is_counted_and_its_batch_kept(
    spoil: dict[str, Any], batches: int, tmp_path: Path
) -> None:
    moment, *rest = batch()
    assert moment[1] is not None
    spoilt = json.dumps({**json.loads(moment[1]), **spoil})
    report = reported(tpu_logs.file([(moment[0], spoilt), *rest]), tmp_path / "trace.log")
    assert report.torch_tpu.batches == batches
    assert report.run.notes[0].startswith("1 record could not be understood, the first: ")
    assert report.run.notes[1].startswith("1 of the batches are not dated")


def test_a_torn_file_tells_what_is_whole(tmp_path: Path) -> None:
    whole = tpu_logs.file(training()).encode()
    torn = reported(whole[: len(whole) // 2], tmp_path / "torn.log")
    assert 20 <= torn.torch_tpu.batches <= 30


def test_a_moment_without_its_graph_is_a_batch() -> None:
    took = Batches()
    first, second = batch(), batch(at_ms=5)
    assert took.take(*first[0]) == ()
    [lone] = took.take(*second[0])
    assert (lone.graph, lone.unix_ns) == ("", tpu_logs.UNIX_US * 1000)
    assert [one.graph != "" for one in took.take(*second[1])] == [True]
    assert list(took.end()) == []


def test_threads_that_write_side_by_side_are_told_apart() -> None:
    took = Batches()
    one, other = batch("item()", at_ms=1), batch(".cpu()", at_ms=2)
    assert took.take(*one[0], 1) == took.take(*other[0], 2) == ()
    assert [found.unix_ns for found in took.take(*other[1], 2)] == [(tpu_logs.UNIX_US + 2_000) * 1000]
    assert [found.unix_ns for found in took.take(*one[1], 1)] == [(tpu_logs.UNIX_US + 1_000) * 1000]


@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_the_file_holds_a_report_comes(data: st.DataObject, tmp_path: Path) -> None:
    """Bytes of a log replaced, left out and put in: nothing raises, and no more batches are told than it had heads."""
    text = bytearray(tpu_logs.file(training()[:24]).encode())
    head = text.index(b"\n")
    for _ in range(data.draw(st.integers(1, 12))):
        at = data.draw(st.integers(head, len(text) - 1))
        length = data.draw(st.integers(0, 40))
        text[at : at + length] = data.draw(st.binary(max_size=12))
    try:
        report = reported(bytes(text), tmp_path / "mutated.log")
    except LogError:  # what was put in made another kind of file of it, which is no whole one
        return
    assert report.torch_tpu.batches <= text.count(b"chromium_event") + text.count(b"aten_graph")
    page(report)


def test_a_graph_of_any_length_and_names_of_any_number_stay_within_bounds(tmp_path: Path) -> None:
    huge = "# Graph: 999999999999 ops\n" + "v = x(1)    # f.py:99999999999 in g\n" * 100_000
    records = batch(text=huge) + batch(text="\x00" * 10_000, name="n" * 100_000, reason="r" * 100_000, at_ms=1)
    report = reported(tpu_logs.file(records), tmp_path / "trace.log")
    assert report.torch_tpu.batches == 2
    assert max(len(one.reason) for one in report.torch_tpu.reasons) <= 4_096
    page(report)


# -- while a recording is on

#: stands for TorchTPU: the package that a program imports, with the part that writes what was gathered
PACKAGE = {
    "torch_tpu/__init__.py": "import torch_tpu._internal.tracing\n",
    "torch_tpu/_internal/__init__.py": "",
    "torch_tpu/_internal/tracing.py": """
        import sys, time
        from torch._logging import trace_structured
        from tests.sources.tpu_logs import batch, graph

        gathered = []

        def ran(reason, hit=True, **more):
            gathered.append((reason, hit, time.time_ns() / 1e3 - 2_000, more))

        def _flush():
            for reason, hit, at, more in gathered:
                for metadata, payload in batch(reason, hit, ms=1, unix_us=at, **more):
                    [(name, said)] = [(k, v) for k, v in metadata.items() if k != "has_payload"]
                    trace_structured(name, metadata_fn=lambda: said, payload_fn=lambda: payload, expect_trace_id=False)
            gathered.clear()
        """,
}
PROGRAM = """
import sys, time, threading
import xlaprof
assert "torch" not in sys.modules and "torch_tpu" not in sys.modules
with xlaprof.record("run.log"):
    assert "torch_tpu" not in sys.modules, "only the program imports it"
    import torch_tpu
    from torch_tpu._internal import tracing
    time.sleep(0.01)
    tracing.ran("item()", hit=False)
    thread = threading.Thread(target=tracing._flush)  # as its own thread does every five seconds
    thread.start()
    thread.join()
    for _ in range(3):
        tracing.ran("item()")
    {spoil}
import logging
assert not any(type(one).__module__.startswith("xlaprof") for one in logging.getLogger("torch.__trace").handlers)
"""


def run(tmp_path: Path, traced: bool = True, spoil: str = "") -> tuple[list[Any], str]:
    for name, text in PACKAGE.items():
        (tmp_path / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / name).write_text(textwrap.dedent(text))
    (tmp_path / "program.py").write_text(PROGRAM.format(spoil=spoil))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path / "site")])}
    env.pop("TORCH_TRACE", None)
    env |= {"TORCH_TRACE": str(tmp_path / "trace")} if traced else {}
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return list(xlaprof.read(tmp_path / "run.log")), done.stderr


def test_a_recording_listens_once_the_program_imports_torch_tpu_and_has_the_rest_written(tmp_path: Path) -> None:
    events, said = run(tmp_path)
    assert said == ""
    assert "TorchTPU" in [one.name for one in events if isinstance(one, Source)]
    batches = [one for one in events if isinstance(one, TorchTpuBatch)]
    assert [(one.reason, one.cached, one.ops) for one in batches] == [("item()", False, 3)] + [("item()", True, 3)] * 3
    report = Run().feed_all(events).report()
    assert report.torch_tpu.batches == 4
    assert report.counters["TorchTPUBatch"] == 4
    assert report.seconds["TorchTPUCompile"] == pytest.approx(0.001)
    assert report.torch_tpu.reasons[0].places[0].line == 13
    [trace] = (tmp_path / "trace").glob("*.log")
    assert reported(trace.read_bytes(), tmp_path / "copy.log").torch_tpu.batches == 4  # what PyTorch itself wrote


def test_it_says_that_nothing_will_be_told_without_torch_trace(tmp_path: Path) -> None:
    _, said = run(tmp_path, traced=False)
    assert said.count("\n") == 1
    assert "TORCH_TRACE=/tmp/trace xlaprof run" in said


def test_what_cannot_be_is_counted_in_the_log_and_never_raises(tmp_path: Path) -> None:
    spoil = """
    gathered = tracing.gathered
    gathered.append(("item()", True, 1e12, {}))  # 1970
    gathered.append(("item()", True, time.time_ns() / 1e3 + 1e9, {}))  # in a quarter of an hour
    gathered.append((3, "yes", time.time_ns() / 1e3, {}))
    """
    events, said = run(tmp_path, spoil=spoil.strip())
    assert said == ""
    assert sum(isinstance(one, TorchTpuBatch) for one in events) == 4
    [dropped] = [one for one in events if isinstance(one, Dropped)]
    assert (dropped.why, dropped.count) == ("TorchTPU", 4)  # two of the last, its moment and its graph


# -- graphs


def test_a_line_of_nothing_but_spaces_is_no_work() -> None:
    assert parsed("\n".join([" " * 100_000 + "#"] * 100)).lines == ()


def test_the_most_similar_graph_is_compared_with() -> None:
    known = Known()
    for text in (graph("item()"), graph("item()", "9,9"), "v0 = Sum(in0)\nreturn v0"):
        known.add(parsed(text))
    found = known.difference(parsed(graph("item()", "8,5", line=20)))
    assert found is not None
    assert (found.old, found.new) == (
        "v0 = MatMul(in0: f32[9,9], in1: f32[4,4])",  # the later one of two that differ in as much
        "v0 = MatMul(in0: f32[8,5], in1: f32[4,4])",
    )
    assert found.place == RawFrame("/home/me/train.py", 20, "step")
    assert known.difference(parsed("w = Sort(in0)\nreturn 3")) is None, "nothing is like it"
    assert known.difference(parsed("")) is None


def test_neither_the_reason_nor_the_users_line_is_a_difference() -> None:
    known = Known()
    known.add(parsed(graph("item()")))
    assert known.difference(parsed(graph(".cpu()", line=99))) is None


@given(st.lists(st.text(max_size=30), max_size=8), st.lists(st.text(max_size=30), max_size=8))
def test_a_difference_is_of_two_lines_that_differ(mine: list[str], theirs: list[str]) -> None:
    known, new = Known(), parsed("\n".join(mine))
    known.add(parsed("\n".join(theirs)))
    found = known.difference(new)
    if found is not None:
        assert found.old != found.new
        assert found.new in new.lines
    assert known.difference(parsed("\n".join(theirs))) is None
