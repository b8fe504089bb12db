"""Recordings made on a GPU (an H200), beside what PyTorch's profiler and the clock said of the same runs.

The programs are in ``cuda_programs``. Each ran as ``xlaprof run -o NAME.log NAME.py NAME.json``, and wrote what is true
of its loop into NAME.json; paths in the logs are shortened.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import xlaprof
from xlaprof.analysis.model import Report
from xlaprof.analysis.run import Run
from xlaprof.events import Device, Execute, Look, Sample, Stack

HERE = Path(__file__).parent
NAMES = ("busy", "graphs", "item", "loader", "stall", "transformer")


class Recorded:
    def __init__(self, name: str) -> None:
        self.events = list(xlaprof.read(HERE / "cuda_logs" / f"{name}.log.gz"))
        self.true: dict[str, Any] = json.loads((HERE / "cuda_logs" / f"{name}.json").read_text())
        self.run = Run().feed_all(self.events)
        self.report: Report = self.run.report()
        self.begin, self.end = self.true["begin"], self.true["end"]

    @property
    def busy(self) -> float:
        """The share of the loop's time in which the device was busy, by the recording."""
        runs = (one for one in self.events if isinstance(one, Execute))
        spans = (min(one.end, self.end) - max(one.start, self.begin) for one in runs)
        return sum(ns for ns in spans if ns > 0) / (self.end - self.begin)

    def share(self, name: str) -> float:
        return float(self.true[name]) / (self.end - self.begin)

    def waited(self, line: str) -> int:
        """ns that the host waited in the loop, by looks at this line."""
        looks = (one for one in self.events if isinstance(one, Look) and one.state == "device")
        inside = (one for one in looks if self.begin <= one.t + one.dur <= self.end)
        return sum(one.dur for one in inside if self.run.resolve(one.stack).code == line)


@pytest.fixture(scope="module")
def logs() -> dict[str, Recorded]:
    return {name: Recorded(name) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_the_device_was_as_busy_as_the_profiler_saw_it(logs: dict[str, Recorded], name: str) -> None:
    """The profiler counts kernels, and copies apart; the recording also the time between two kernels of a queue.
    A transformer's step is some 400 of them in 27 ms."""
    one = logs[name]
    apart = 0.05 if name in ("item", "transformer") else 0.015
    assert one.share("busy") - 0.005 <= one.busy <= one.share("busy") + apart
    (device,) = [each for each in one.events if isinstance(each, Device)]
    assert (device.platform, device.kind) == ("cuda", one.true["gpu"])


def test_a_stall_is_found_in_each_of_its_turns_at_its_line(logs: dict[str, Recorded]) -> None:
    one = logs["stall"]
    runs = sorted((each.start, each.end) for each in one.events if isinstance(each, Execute))
    gaps = [(end, begin) for (_, end), (begin, _) in pairwise(runs) if one.begin < end and begin < one.end]
    lengths = [begin - end for end, begin in gaps]
    assert len(lengths) == 39  # one after each turn but the last
    assert all(18e6 < ns < 23e6 for ns in lengths)
    assert sum(lengths) == pytest.approx(one.true["stalled"], rel=0.02)
    (found,) = one.report.findings
    assert (found.kind, found.place.file, found.place.func) == ("idle_gap", "/programs/measured.py", "python")
    samples = [each for each in one.events if isinstance(each, Sample)]
    looked = [gap for gap in gaps if any(each.t < gap[1] and each.t + each.dur > gap[0] for each in samples)]
    assert len(looked) >= 38
    seen = {each.stack for each in samples if one.run.resolve(each.stack).func == "python"}
    assert all("python(20)  # <-- the stall" in [at.code for at in one.run.names.frames(stack)] for stack in seen)


def test_the_host_that_prepares_a_batch_is_named_and_where_it_waits_too(logs: dict[str, Recorded]) -> None:
    one = logs["item"]
    (found,) = one.report.findings
    assert (found.kind, found.place.code) == ("idle_gap", "return (rows.roll(turn, 0) * 1.01).sin()")
    assert one.waited("return loss.item()  # <-- the read") == pytest.approx(one.true["waited"], rel=0.15)


def test_waits_of_a_program_that_is_only_busy_are_no_idle_time(logs: dict[str, Recorded]) -> None:
    one = logs["stall"]
    account = next(each for each in one.report.accounts if each.what == "busy")
    assert account.remark == "The host waited for it at stall.py:18: about 1.88 s in all, by 38 looks."
    # the rest of the busy time it handed over the work
    assert 0.8 * one.true["busy"] < one.waited("torch.cuda.synchronize()") < one.true["busy"]


@pytest.mark.parametrize("name", ["busy", "loader", "graphs", "transformer"])
def test_where_nothing_keeps_the_device_waiting_again_and_again_nothing_is_found(
    logs: dict[str, Recorded], name: str
) -> None:
    """The loader's 12 ms for a batch are shorter than the step; the profiler's own start is once."""
    assert [each.kind for each in logs[name].report.findings] == []


def test_the_lines_are_those_of_the_programs(logs: dict[str, Recorded]) -> None:
    for name in NAMES:
        one = logs[name]
        stacks = (each.id for each in one.events if isinstance(each, Stack))
        places = {frame for stack in stacks for frame in one.run.names.frames(stack)}
        own = [place for place in places if place.file.startswith("/programs/")]
        assert own
        for place in own:
            lines = (HERE / "cuda_programs" / Path(place.file).name).read_text().splitlines()
            assert lines[place.line - 1].strip() == place.code, place
