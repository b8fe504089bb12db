"""Timed calls of graphs become the share of a step that ran compiled, by graph, and what passes beside each break."""

from __future__ import annotations

from typing import Any

import pytest
from story import MS

from xlaprof.analysis.model.compiled import RunTimeStat
from xlaprof.events import GraphCalls, Look, TimedGraph
from xlaprof.pages.json import to_json

from .compiling import Compiling

HEAD, REST, BACK_REST, BACK = 1, 2, 3, 4  # graphs of a function that a print cuts in two, and their backward graphs


class Calling(Compiling):
    """``forward`` is cut at line 12. Its calls follow on a clock, whose ms are the test's."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = self.story.line(12, "print(x)", func="forward")
        self.broke("0/0", 12)
        self.compile("0/0")
        self.compile("1/0", resumed=self.cut)
        for number, name, behind, backward in (
            (HEAD, "0/0", False, False),
            (REST, "1/0", True, False),
            (BACK_REST, "1/0", True, True),
            (BACK, "0/0", False, True),
        ):
            self.graph(number, name, self.cut * behind, 12 * behind, backward=backward)
        self.calls: list[tuple[int, int, int, int, int]] = []  # begin, ns, graph, thread, steps that had ended
        self.steps = 0
        self.joined = False

    def graph(self, number: int, compile: str, resumed: int = 0, line: int = 0, **fields: Any) -> None:
        where = {"func": self.func, "code": self.code, "stack": self.call, **fields}
        self.story.emit(TimedGraph(self.story.now, number, compile, resumed=resumed, line=line, **where))

    def ran(self, graph: int, ms: float, tid: int = 1) -> None:
        self.calls.append((self.story.now, round(ms * MS), graph, tid, self.steps))
        self.story.spend(ms)

    def step(self, *, printing: float = 4) -> None:
        """A step of 20 ms, of which 3 + 2 + 2 + 1 run in graphs and ``printing`` is spent at the break."""
        self.ran(HEAD, 3)
        self.story.spend(printing)
        self.ran(REST, 2)
        self.story.spend(1)
        self.ran(BACK_REST, 2)
        self.story.spend(0.5)
        self.ran(BACK, 1)
        self.story.spend(20 - 9.5 - printing)
        self.steps += 1

    def tell(self, skipped: int = 0, steps: bool = True, goes_on: bool = False) -> None:
        """The calls so far, as the timer tells them. ``goes_on``: the next window begins with the last of them."""
        begins, took, graphs, tids, ended = map(list, zip(*self.calls, strict=True))
        before = [begins[0], *begins[:-1]], [ended[0], *ended[:-1]]
        after, counts = (
            [a - b for a, b in zip(*pair, strict=True)] for pair in zip((begins, ended), before, strict=True)
        )
        ended = counts if steps else []
        self.story.emit(GraphCalls(begins[0], graphs, after, took, tids, ended, skipped, self.joined))
        self.calls, self.joined = self.calls[-1:] * goes_on, goes_on

    def run(self) -> RunTimeStat:
        return self.story.run().report().torch_compile.run_time

    def between(self) -> list[float]:
        return [round(one.between_s * 1e3, 6) for one in self.findings("graph_break")]


@pytest.fixture
def told() -> Calling:
    return Calling()


def test_the_share_of_a_step_and_of_each_graph(told: Calling) -> None:
    for _ in range(6):
        told.step()
    told.tell()
    report = told.story.run().report()
    run_time = report.torch_compile.run_time
    assert (run_time.share, run_time.step_s) == (pytest.approx(8 / 20), pytest.approx(0.020))
    (function,) = report.torch_compile.functions
    assert [(one.line, one.backward, one.step_s, one.share) for one in function.graph_times] == [
        (line, backward, pytest.approx(ms / 1e3), pytest.approx(ms / 20))
        for line, backward, ms in ((0, False, 3), (12, False, 2), (0, True, 1), (12, True, 2))
    ]
    assert function.runs[0] == (
        "40% of the time ran in its graphs: 8.0 ms of each step, 3.0 ms of it in the backward pass; 4.5 ms between them"
    )
    assert run_time.text == "40% of a step, of 20 ms, ran in compiled graphs. Timed: 24 calls."
    json = to_json(report)["torch_compile"]
    assert json["run_time"]["share"] == pytest.approx(0.4)
    assert json["functions"][0]["graph_times"][0]["line"] == 0


def test_the_time_in_graphs_is_known_though_no_look_falls_into_it(told: Calling) -> None:
    for _ in range(500):
        told.step()
    told.tell()
    told.story.emit(Look(told.story.now, 2000 * MS, told.story.line(14, "loss.backward()"), "python"))
    told.story.finish()
    (running,) = [one for one in told.story.run().report().accounts if one.what == "run"]
    assert "what is compiled ran" in running.reason
    assert running.normal_s == pytest.approx(2.0 + 0.4 * running.total_s, rel=0.01)
    assert running.unexplained_s == pytest.approx(running.total_s - running.normal_s)


def test_a_break_costs_what_passes_between_its_two_sides(told: Calling) -> None:
    for _ in range(6):
        told.step(printing=4)
    told.tell()
    (finding,) = told.findings("graph_break")
    assert finding.between_s == pytest.approx(0.0045)  # 4 ms forward, 0.5 ms backward
    assert (
        "4.5 ms of each step pass between the graphs on both sides (500 us of it in the backward pass)" in finding.cause
    )
    # of six steps the first calls each graph for the first time, and of the last nobody saw the end
    assert "timed 8 times between the graphs on both sides" in finding.evidence


def test_without_named_steps_it_is_of_the_time_and_of_a_call(told: Calling) -> None:
    for _ in range(6):
        told.step()
    told.tell(steps=False)
    assert told.run().step_s is None
    # from the first call of each graph on: what the first step set up does not count
    assert told.run().share == pytest.approx((5 * 8 - 1) / (5 * 20 - 11.5), abs=0.02)
    assert told.between() == [4.5]


def test_what_was_compiled_in_between_is_no_part_of_it(told: Calling) -> None:
    """A third step is compiled for another size, for 100 ms at the break: that step is left out."""
    for number in range(8):
        if number == 3:
            told.ran(HEAD, 3)
            told.compile("1/1", ms=100, resumed=told.cut)
            told.ran(REST, 2)
            told.steps += 1
        else:
            told.step()
    told.tell()
    assert (told.run().share, told.run().step_s) == (pytest.approx(0.4), pytest.approx(0.020))
    assert told.between() == [4.5]


def test_windows_stand_for_the_calls_that_were_left_out_before_them(told: Calling) -> None:
    """The last three quarters of a run print for longer, and are timed four times as seldom."""
    for _ in range(6):
        told.step(printing=2)
    told.tell()
    for _ in range(6):
        told.step(printing=6)
    told.tell(skipped=72)  # three times as many calls as in this window
    whole = 5 * 2.5 + 4 * 5 * 6.5
    assert told.between() == [pytest.approx(whole / 25, rel=0.02)]
    assert "Timed: 48 of 120 calls" in told.run().text


def test_a_row_of_joined_windows_is_one_row(told: Calling) -> None:
    """Each step is a window: nothing is lost where they meet, nor counted twice."""
    for _ in range(6):
        told.step()
        told.tell(goes_on=True)
    report = told.story.run().report()
    assert report.torch_compile.run_time.share == pytest.approx(0.4)
    assert report.torch_compile.run_time.timed == 24
    assert told.between() == [4.5]


def test_a_backward_pass_on_a_thread_of_its_own(told: Calling) -> None:
    """As on a GPU: the main thread's time between its graphs is the break's alone, the other's its own."""
    for _ in range(6):
        told.ran(HEAD, 3)
        told.story.spend(4)
        told.ran(REST, 2)
        told.ran(BACK_REST, 2, tid=2)
        told.story.spend(0.5)
        told.ran(BACK, 1, tid=2)
        told.story.spend(7.5)
        told.steps += 1
    told.tell()
    assert told.run().share == pytest.approx(0.4)
    assert told.between() == [4.5]


def test_threads_that_call_graphs_at_the_same_time_fill_the_time_once(told: Calling) -> None:
    for _ in range(20):
        begin = told.story.now
        for tid in (1, 2):
            told.calls.append((begin + tid, 6 * MS, HEAD, tid, told.steps))
        told.story.spend(10)
        told.steps += 1
    told.tell()
    assert told.run().share == pytest.approx(0.6, abs=0.001)


def test_a_graph_that_a_broken_line_calls_is_none_of_the_breaks_time(told: Calling) -> None:
    """The line at which forward is cut calls helper, which is compiled by itself, for 3 of 4 ms."""
    told.graph(9, "2/0", func=told.story.text("helper"), code=told.story.line(30, "def helper(x):", func="helper"))
    for _ in range(6):
        told.ran(HEAD, 3)
        told.story.spend(0.5)
        told.ran(9, 3)
        told.story.spend(0.5)
        told.ran(REST, 2)
        told.story.spend(1)
        told.steps += 1
    told.tell()
    assert told.between() == [1.0]
    assert told.run().share == pytest.approx(0.8)
    assert "helper 30%: compiled before the recording began" in told.run().text


def test_a_graph_within_the_call_of_another_counts_once(told: Calling) -> None:
    for _ in range(12):
        begin = told.story.now
        told.calls += [(begin, 8 * MS, HEAD, 1, told.steps), (begin + 2 * MS, 3 * MS, 9, 1, told.steps)]
        told.story.spend(10)
        told.steps += 1
    told.graph(9, "2/0", func=told.story.text("helper"))
    told.tell()
    assert told.run().share == pytest.approx(0.8)
    (function,) = told.story.run().report().torch_compile.functions
    assert [one.call_s for one in function.graph_times] == [pytest.approx(0.005)]


def test_a_function_whose_first_piece_holds_no_graph_has_no_time_at_its_break(told: Calling) -> None:
    """What precedes the piece behind the break is the call before: the time to it is the program's."""
    for _ in range(12):
        told.ran(REST, 2)
        told.story.spend(8)
        told.steps += 1
    told.tell()
    assert told.between() == [0.0]
    assert "pass between" not in told.findings("graph_break")[0].cause


def test_of_a_few_calls_nothing_is_told(told: Calling) -> None:
    told.step()
    told.tell()
    assert told.run().share is None
    assert told.run().text == "not known: 4 calls of graphs, without the first of each, are too few."


def test_of_graphs_that_are_not_inductors_it_says_that_they_are_not_timed() -> None:
    plain = Compiling()
    plain.compile("0/0", backend=plain.story.text("aot_eager"))
    run_time = plain.story.run().report().torch_compile.run_time
    assert run_time.text == "not known: graphs of aot_eager are not timed, inductor's are."


def test_two_recordings_are_added_up(told: Calling) -> None:
    other = Calling()
    for one, printing in ((told, 2.0), (other, 6.0)):
        for _ in range(6):
            one.step(printing=printing)
        one.tell()
    report = (told.story.run() + other.story.run()).report()
    assert report.torch_compile.run_time.share == pytest.approx(0.4)
    (finding,) = (one for one in report.findings if one.kind == "graph_break")
    assert finding.between_s == pytest.approx(0.0045)


def test_columns_of_different_lengths_do_no_harm(told: Calling) -> None:
    told.story.emit(GraphCalls(told.story.now, [1, 2, 3], [0], [5, 6], [], [], joined=True))
    told.story.emit(GraphCalls(told.story.now, [], [], [], joined=True))
    told.story.emit(GraphCalls(told.story.now, [77], [0], [5]))
    assert told.run().share is None


@pytest.mark.parametrize(("steps", "paid"), [(40, False), (400, True)])
def test_a_compilation_that_all_calls_together_are_too_short_to_pay_back_is_said_to_be_one(
    told: Calling, steps: int, paid: bool
) -> None:
    """A third graph takes 16 s to compile; the calls take 8 ms in each step: a tenth of it after 200 steps."""
    told.compile("2/0", ms=16_000)
    for _ in range(steps):
        told.step()
    told.tell()
    (first,) = (one for one in told.story.run().report().torch_compile.charges if one.what == "first")
    assert ("a run as short as this does not pay back" in first.why) is not paid
    assert ("graphs: normal" in first.why) is paid
    if not paid:
        assert "all calls of the graphs took 3" in first.why
