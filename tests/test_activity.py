"""What a thread is doing, read off real frames: plain Python, the next item of its data, a checkpoint, our own work."""

from __future__ import annotations

import hashlib
import importlib
import io
import linecache
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from xlaprof.recording import stacks
from xlaprof.recording.activity import CHECKPOINT, DATA, IMPORT, PYTHON, TORCH, Activity, activity, unchosen_moment
from xlaprof.recording.stacks import RawFrame


class Eye:
    """Looks at its caller when asked to, as a sampler would from another thread; ``spine``: the last barrier."""

    def __init__(self) -> None:
        self.seen: list[Activity | None] = []
        self.spine: tuple[RawFrame, ...] = ()

    def barrier(self) -> None:
        self.spine = stacks.user_frames(skip=1)

    def look(self, up: int = 1) -> None:
        frame: FrameType | None = sys._getframe(up)
        assert frame is not None
        self.seen.append(activity(frame, self.spine))


def batches(eye: Eye) -> Iterator[int]:
    for i in range(3):
        eye.look()
        yield i


class Lazy:
    """An iterator of a class of the user's own."""

    def __init__(self, eye: Eye) -> None:
        self.eye = eye
        self.left = 3

    def __iter__(self) -> Lazy:
        return self

    def __next__(self) -> int:
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        self.eye.look()
        return self.left


@pytest.mark.parametrize("make", [batches, Lazy])
def test_what_the_training_loop_iterates_over_is_its_data(make: Callable[[Eye], Iterator[int]]) -> None:
    eye = Eye()
    for _ in make(eye):
        eye.barrier()
    first, *others = eye.seen
    assert first is not None
    assert first.kind == PYTHON
    assert [one.kind for one in others if one is not None] == [DATA, DATA]
    assert others[0] is not None
    inner, loop = others[0].frames[:2]
    assert inner.func in ("batches", "Lazy.__next__")
    assert loop.line == eye.spine[0].line - 1  # the for above the barrier


def test_next_in_a_while_loop_is_data_too() -> None:
    eye = Eye()
    source = batches(eye)
    while (item := next(source, None)) is not None:
        assert item >= 0
        eye.barrier()
    assert [one.kind for one in eye.seen if one is not None] == [PYTHON, DATA, DATA]


def test_a_loop_that_reaches_no_barrier_draws_no_data() -> None:
    eye = Eye()
    eye.barrier()
    total = 0
    for i in batches(eye):  # statistics, say
        total += i
    assert [one.kind for one in eye.seen if one is not None] == [PYTHON] * 3


def test_a_generator_consumed_inside_a_function_of_the_step_is_no_data() -> None:
    eye = Eye()
    for _ in range(2):
        sum(batches(eye))
        eye.barrier()
    assert {one.kind for one in eye.seen if one is not None} == {PYTHON}


def test_an_instruction_of_no_line_is_its_functions_first() -> None:
    def between_lines(eye: Eye) -> None:
        eye.look()

    first = between_lines.__code__.co_firstlineno
    between_lines.__code__ = between_lines.__code__.replace(co_linetable=b"")  # as the jump back in a loop may be
    eye = Eye()
    between_lines(eye)
    (seen,) = eye.seen
    assert seen is not None
    assert (seen.frames[0].func.rpartition(".")[2], seen.frames[0].line) == ("between_lines", first)


class Photos(Dataset[Any]):
    def __init__(self, eye: Eye) -> None:
        self.eye = eye

    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int) -> int:
        self.eye.look()
        return i


def test_a_plain_data_loader_is_known_from_its_first_item() -> None:
    eye = Eye()
    for _ in DataLoader(Photos(eye), batch_size=1):
        pass
    for one in eye.seen:
        assert one is not None
        assert one.kind == DATA
        assert [frame.func for frame in one.frames[:2]] == [
            "Photos.__getitem__", "test_a_plain_data_loader_is_known_from_its_first_item",
        ]  # fmt: skip


def test_saving_is_a_checkpoint() -> None:
    eye = Eye()

    class Watched(io.BytesIO):
        def write(self, data: Any) -> int:
            if not eye.seen:
                eye.look()
            return super().write(data)

    torch.save({"weight": torch.ones(3)}, Watched())
    (one,) = eye.seen
    assert one is not None
    assert one.kind == CHECKPOINT


def test_our_own_work_is_reported_by_events() -> None:

    from xlaprof.recording import trace

    def inside(function: Callable[[], None]) -> Callable[[], None]:
        return trace.Trace("scope")(function)

    eye = Eye()

    @inside
    def work() -> None:
        eye.look(2)  # the frame of the decorator, which is ours

    work()
    assert eye.seen == [None]


def test_waiting_for_a_queue_is_waiting_as_asked() -> None:
    import queue

    eye = Eye()

    class Watched(queue.Queue[int]):
        def _qsize(self) -> int:
            eye.look(2)  # Queue.get
            return 1

        def _get(self) -> int:
            return 7

    assert Watched().get() == 7
    assert all(one is not None and one.in_wait_call for one in eye.seen)
    eye.look()
    last = eye.seen[-1]
    assert last is not None
    assert not last.in_wait_call


def test_pytorchs_own_python_is_distinguished_from_the_users() -> None:
    eye = Eye()

    class Looks(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            eye.look()  # the user's
            eye.look(2)  # Module.__call__
            return x

    Looks()(torch.ones(1))
    assert [one.kind for one in eye.seen if one is not None] == [PYTHON, TORCH]


def test_python_of_a_library_that_pytorch_calls_is_that_librarys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch calls the module of a library: what runs in its forward is no Python of PyTorch's."""
    module = tmp_path / "site-packages" / "layers_looked_at.py"
    module.parent.mkdir()
    module.write_text(
        "import torch\n"
        "class Layer(torch.nn.Module):\n"
        "    def forward(self, eye):\n"
        "        eye.look()\n"  # the library's
        "        eye.look(2)\n"  # Module.__call__
    )
    monkeypatch.syspath_prepend(str(module.parent))
    layer, eye = importlib.import_module("layers_looked_at").Layer(), Eye()
    layer(eye)
    seen = [one for one in eye.seen if one is not None]
    assert [one.kind for one in seen] == [PYTHON, TORCH]
    assert [one.frame.func for one in stacks.library(seen[0].frames)] == ["Layer.forward"]


def test_a_first_import_is_no_work_of_the_library_that_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libraries import their compilers when they are first called: seconds, once in a process."""
    eye = Eye()
    monkeypatch.setattr(sys, "an_eye", eye, raising=False)
    for folder, name in (("site-packages/torch", "imported_late"), ("program", "imported_own")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / f"{name}.py").write_text("import sys\nsys.an_eye.look()\n")
        monkeypatch.syspath_prepend(str(tmp_path / folder))
        importlib.import_module(name)
        monkeypatch.delitem(sys.modules, name)
    late, own = eye.seen
    assert late is not None
    assert own is not None
    assert (late.kind, late.frames[0].file) == (IMPORT, __file__)
    assert (own.kind, Path(own.frames[0].file).name) == (PYTHON, "imported_own.py")


def test_a_look_does_not_wait_for_the_line_that_gives_the_interpreters_lock_up() -> None:
    """A digest of 64 KiB lets others run, each time and by itself; the sum before it takes ten times as long."""
    block, lines, stop = bytes(1 << 16), Counter[str](), threading.Event()
    interval, main = sys.getswitchinterval(), threading.get_ident()

    def look() -> None:
        for _ in range(60):
            unchosen_moment()
            frame = sys._current_frames()[main]
            while frame.f_code.co_filename != __file__ and frame.f_back is not None:
                frame = frame.f_back
            lines[linecache.getline(__file__, frame.f_lineno).strip()] += 1
        stop.set()

    looking = threading.Thread(target=look)
    looking.start()
    while not stop.is_set():
        for n in range(10_000):
            assert n * n >= n
        hashlib.sha256(block)
    looking.join()
    assert lines["hashlib.sha256(block)"] < 30, lines
    assert sys.getswitchinterval() == interval


_LOOKS_AND_FORKS = """
import os, sys, threading
from xlaprof.recording.activity import unchosen_moment

interval, stop = sys.getswitchinterval(), threading.Event()

def look():
    while not stop.is_set():
        unchosen_moment()

lookers = [threading.Thread(target=look) for _ in range(3)]
for looker in lookers:
    looker.start()
changed = 0
for _ in range(20):
    child = os.fork()
    if not child:
        os._exit(int(sys.getswitchinterval() != interval))
    changed += os.waitpid(child, 0)[1] != 0
stop.set()
for looker in lookers:
    looker.join()
print(changed, sys.getswitchinterval() == interval)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_the_interpreters_switch_interval_is_the_programs_whoever_looks_and_forks() -> None:
    done = subprocess.run([sys.executable, "-c", _LOOKS_AND_FORKS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "True"]
