"""What retains tensors that accumulate is reported by the name it has in the program, with the line that adds."""

from __future__ import annotations

import inspect
import itertools
import sys
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

import xlaprof.runtime as xr
from xlaprof.events import Kept, Live
from xlaprof.runtime.instruments.retainers import retainers
from xlaprof.runtime.instruments.retaining_lines import retaining_lines

from .recorded_programs import record


class Metrics:
    def __init__(self) -> None:
        self.history: Any = []
        self.steps = 0

    def update(self, loss: Any) -> None:
        self.steps += 1
        self.history.append(loss)


class Slotted:
    __slots__ = ("losses", "unset")

    def __init__(self) -> None:
        self.losses: list[Any] = []


class Record(msgspec.Struct):
    step: int
    loss: Any


class Haunted(list):  # type: ignore[type-arg]
    """A list whose own methods must not be called by who only looks."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError

    def __len__(self) -> int:
        raise AssertionError


SEEN: list[Any] = []


#: of each test its own: else it would follow another test's operations, with their lines
SIZES = itertools.count(301)
size = 300


def ones() -> torch.Tensor:
    return torch.ones(size, device="xla") * 2


@pytest.fixture(autouse=True)
def recorded(tmp_path: Path) -> Iterator[None]:
    """Places of tensors are known while a recording is on."""
    import xlaprof

    global size
    size = next(SIZES)

    with xlaprof.record(tmp_path / "run.log"):
        yield


def found(tensor: torch.Tensor) -> list[tuple[str, str, int]]:
    """Who keeps tensors made where ``tensor`` was."""
    xr.sync()
    return [(one.path, one.kind, one.length) for one in retainers([tensor._storage.frames], limit_ns=1 << 60)]  # type: ignore[attr-defined]


# The stories are functions of their own: where there is an assert pytest asks for the locals.


def in_a_function() -> list[tuple[str, str, int]]:
    losses = [ones() for _ in range(5)]
    return found(losses[0])


def in_attributes_and_globals() -> list[tuple[str, str, int]]:
    metrics, slotted, logs = Metrics(), Slotted(), defaultdict(deque)
    made = ones()
    metrics.history += [made] * 4
    slotted.losses += [(step, made) for step in range(5)]
    logs["loss"].extend(Record(step, made) for step in range(6))
    SEEN.extend([made] * 7)
    held = {"outer": Haunted([made] * 8)}
    try:
        return found(made) if held else []
    finally:
        SEEN.clear()


def among_others() -> Any:
    made, other = ones(), torch.zeros(3, device="xla") + 1
    others, few = [other] * 9, [made, made]
    return found(made), found(other), others, few


def gone_after_a_look() -> Any:
    losses = [ones() for _ in range(5)]
    last = weakref.ref(losses[-1])
    seen = found(losses[0])
    del losses
    return seen, last()


def given_its_locals() -> Any:
    losses = [ones() for _ in range(5)]
    given = locals()
    before = dict(given)
    return found(losses[0]), given == before or sys.version_info >= (3, 13)


def test_a_list_of_a_running_function_is_found_by_its_name() -> None:
    assert in_a_function() == [("losses", "list", 5)]


def test_attributes_and_globals_and_what_they_hold_are_found() -> None:
    assert in_attributes_and_globals() == [
        ("held['outer']", "Haunted", 8),
        ("SEEN", "list", 7),
        ("logs['loss']", "deque", 6),
        ("Slotted.losses", "list", 5),
        ("Metrics.history", "list", 4),
    ]


def test_what_holds_other_tensors_or_few_is_none() -> None:
    made, other, *_ = among_others()
    assert made == []
    assert other == [("others", "list", 9)]


def test_a_look_keeps_nothing_alive() -> None:
    assert gone_after_a_look() == ([("losses", "list", 5)], None)


def test_a_program_that_was_given_its_locals_is_not_looked_at() -> None:
    assert given_its_locals() == ([], True)


def test_the_search_ends_in_time() -> None:
    def look() -> Any:
        losses = [ones() for _ in range(5)]
        xr.sync()
        return retainers([losses[0]._storage.frames], limit_ns=0)  # type: ignore[attr-defined]

    assert look() == []


# -- the lines


def puts(source: str, tmp_path: Path, name: str, owner: str = "") -> list[tuple[int, str]]:
    file = tmp_path / f"program_{len(list(tmp_path.iterdir()))}.py"  # the text of a file is read once
    file.write_text(inspect.cleandoc(source))
    return [(frame.line, frame.func) for frame in retaining_lines(name, owner, [str(file)])]


@pytest.mark.parametrize(
    "line",
    [
        "xs.append(x)", "xs += [x]", "xs = xs + [x]", "xs = [*xs, x]", "xs[step] = x", "xs['loss'].append(x)",
        "xs.setdefault('loss', []).append(x)", "xs.appendleft((step, x))", "xs.update(last=x)", "y = xs.append(x) or y",
    ],
)  # fmt: skip
def test_each_way_to_put_something_into_a_container_is_known(tmp_path: Path, line: str) -> None:
    assert puts(f"xs = make()\nother.append(xs)\nfor x in xs:\n    y = xs[0]\n    {line}\n", tmp_path, "xs") == [
        (5, "<module>")
    ]


def test_an_attribute_is_looked_for_in_its_own_class_first(tmp_path: Path) -> None:
    source = """
        class Other:
            def update(self, loss):
                self.history.append(loss)

        class Metrics:
            def update(self, loss):
                history.append(0)
                self.history.append(loss)

        def elsewhere(metrics, loss):
            metrics.losses.append(loss)
    """
    assert puts(source, tmp_path, "history", "Metrics") == [(8, "Metrics.update")]
    assert puts(source, tmp_path, "losses", "Metrics") == [(11, "elsewhere")]
    assert puts(source, tmp_path, "history") == [(7, "Metrics.update")]
    assert puts(source, tmp_path, "absent") == []


def test_what_runs_once_is_not_what_lets_it_grow(tmp_path: Path) -> None:
    source = """
        losses = []
        losses.append(first)
        for step in range(9):
            losses.append(step)
    """
    assert puts(source, tmp_path, "losses") == [(4, "<module>")]
    assert puts("losses.append(1)\n", tmp_path, "losses") == [(1, "<module>")]


def test_a_text_that_cannot_be_read_has_no_lines(tmp_path: Path) -> None:
    assert puts("losses.append(", tmp_path, "losses") == []
    assert retaining_lines("losses", "", [str(tmp_path / "gone.py"), "<stdin>"]) == ()


# -- in a recording


@pytest.fixture
def every_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read at each barrier, whatever that takes on this machine."""
    monkeypatch.setattr("xlaprof.runtime.instruments.live_tensors._APART", 1)
    monkeypatch.setattr("xlaprof.runtime.instruments.live_tensors._GROWTH", 1.0)
    monkeypatch.setattr("xlaprof.runtime.instruments.live_tensors._FIRST_NS", 1 << 60)
    monkeypatch.setattr(
        "xlaprof.runtime.instruments.live_tensors.retainers", lambda made: retainers(made, limit_ns=1 << 60)
    )


def kept(path: Path, keep: Callable[[int, Any], object]) -> tuple[list[Kept], list[str]]:
    weight = torch.ones(8, 8, device="xla", requires_grad=True)

    def story() -> None:
        for step in range(30):
            keep(step, (weight * step).sum())
            xr.sync()

    run = record(path, story)
    all_kept = [event.kept for event in run.of(Live) if event.kept is not None]
    return all_kept, [run.code(stack) for one in all_kept for stack in one.puts]


@pytest.mark.usefixtures("every_barrier")
class TestRecording:
    @pytest.fixture(autouse=True)
    def recorded(self) -> None:
        """The story has a recording of its own."""

    def test_a_list_that_grows_is_reported_once_with_its_line(self, tmp_path: Path) -> None:
        def story() -> Any:
            metrics = Metrics()
            return kept(tmp_path / "run.log", lambda step, loss: metrics.update(loss))

        found, lines = story()
        assert [(one.path, one.kind) for one in found] == [("Metrics.history", "list")]
        assert found[0].history
        assert 5 <= found[0].length < 30
        assert lines == ["self.history.append(loss)"]

    def test_what_is_full_some_time_is_not_reported(self, tmp_path: Path) -> None:
        def story() -> Any:
            window: deque[Any] = deque(maxlen=4)
            return kept(tmp_path / "run.log", lambda step, loss: window.append(loss))

        assert story() == ([], [])

    def test_a_list_that_stays_as_it_is_does_not_answer_for_one_that_grows(self, tmp_path: Path) -> None:
        def story() -> Any:
            longer: list[Any] = []
            grows: dict[int, Any] = {}

            def keep(step: int, loss: Any) -> None:
                if not longer:
                    longer.extend([loss] * 500)
                grows[step] = loss.detach()

            return kept(tmp_path / "run.log", keep)

        found, lines = story()
        assert [(one.path, one.kind) for one in found] == [("grows", "dict")]
        assert lines == ["grows[step] = loss.detach()"]
        assert not found[0].history

    def test_a_list_with_a_history_comes_before_one_of_detached_numbers(self, tmp_path: Path) -> None:
        def story() -> Any:
            curves: dict[str, list[Any]] = {"first": [], "second": []}

            def keep(step: int, loss: Any) -> None:
                curves["first"].append(loss.detach())
                curves["second"].append(loss)

            return kept(tmp_path / "run.log", keep)

        (found,), _ = story()
        assert (found.path, found.history) == ("curves['second']", True)

    def test_of_a_dict_of_lists_it_is_a_list_that_grows(self, tmp_path: Path) -> None:
        def story() -> Any:
            seen: dict[str, list[Any]] = {}

            def keep(step: int, loss: Any) -> None:
                for layer in ("first", "second", "third"):
                    seen.setdefault(layer, []).append(loss.detach())

            return kept(tmp_path / "run.log", keep)

        found, lines = story()
        assert [(one.path[:6], one.kind) for one in found] == [("seen['", "list")]
        assert lines == ["seen.setdefault(layer, []).append(loss.detach())"]
