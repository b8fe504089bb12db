"""The handler comes with a recording, goes with it, and bears whatever programs and PyTorch do meanwhile."""

from __future__ import annotations

import logging
import logging.config
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import processes
import pytest
import torch
import torch._dynamo
from torch._dynamo.callback import callback_handler

import xlaprof
from tests.sources.observed import Counts, observing
from xlaprof.events import Dropped, DynamoCompile, Recompile
from xlaprof.sources.trace_log import LOGGER

pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def double(x: Any) -> Any:
    return x * 2


def compiled(function: Any = double, **options: Any) -> Any:
    return torch.compile(function, backend="eager", **options)


def ours() -> list[logging.Handler]:
    return [one for one in logging.getLogger(LOGGER).handlers if type(one).__module__.startswith("xlaprof")]


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    with xlaprof.record(tmp_path / "run.log"):
        assert len(ours()) == 1
        compiled()(torch.ones(3))
        assert callback_handler.start_callbacks
    assert ours() == []
    assert callback_handler.start_callbacks == []
    assert callback_handler.end_callbacks == []


def test_one_recording_after_the_other(tmp_path: Path) -> None:
    fast = compiled()
    for size in (3, 4):
        with observing(tmp_path / "run.log") as found:
            fast(torch.ones(size))
    assert found[0].counts == Counts(compiles=1, graphs=1, recompiles=1)
    assert found[0].report.counters["DynamoCompile"] == 1


def test_what_was_compiled_before_the_recording_is_compared_with(tmp_path: Path) -> None:
    fast = compiled()
    fast(torch.ones(3))
    with observing(tmp_path / "run.log") as found:
        fast(torch.ones(3))
        fast(torch.ones(4))
    assert found[0].counts == Counts(compiles=1, graphs=1, recompiles=1)
    assert found[0].changes == [("shape", "x", "f32[3]", "f32[4]")]


def test_a_step_that_compiles_nothing_says_nothing(tmp_path: Path) -> None:
    fast, x = compiled(), torch.ones(3)
    seen: list[logging.LogRecord] = []

    class Counting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record)

    with observing(tmp_path / "run.log") as found:
        fast(x)
        handler = Counting()
        logging.getLogger(LOGGER).addHandler(handler)
        for _ in range(100):
            fast(x)
        logging.getLogger(LOGGER).removeHandler(handler)
    assert seen == []
    assert len(found[0].of(DynamoCompile)) == 1


def test_it_comes_back_after_what_clears_loggers_and_callbacks(tmp_path: Path) -> None:
    fast = compiled()
    known = [one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    enabled = [one for one in known if not one.disabled]
    with observing(tmp_path / "run.log") as found:
        fast(torch.ones(3))
        torch._logging.set_logs()  # clears the handlers
        fast(torch.ones(4))
        torch._dynamo.reset()  # clears the callbacks
        fast(torch.ones(5))
        logging.config.dictConfig({"version": 1, "disable_existing_loggers": True})
        assert logging.getLogger(LOGGER).disabled
        fast(torch.ones(6))
    # which guard failed for 6 had been said before Dynamo called anybody back; the graph is that for any size, as for 4
    assert len(found[0].of(DynamoCompile)) == 4
    assert [change[2:] for change in found[0].changes] == [("f32[3]", "f32[4]"), ("kept", "forgotten")]
    assert logging.getLogger(LOGGER).disabled, "as the program had set it"
    for logger in enabled:
        logger.disabled = False


def test_a_defect_of_ours_stays_out_of_dynamo_and_is_reported(tmp_path: Path) -> None:
    class Hostile(dict[str, Any]):
        def __contains__(self, key: object) -> bool:
            raise RuntimeError("planted")

    with observing(tmp_path / "run.log") as found:
        for _ in range(3):
            logging.getLogger(LOGGER).debug("", extra={"metadata": Hostile(), "payload": None})
        compiled()(torch.ones(3))
    (dropped,) = found[0].of(Dropped)
    assert (dropped.count, dropped.why, dropped.detail) == (3, "torch.compile", "RuntimeError: planted")
    assert len(found[0].of(DynamoCompile)) == 1


def test_threads_compile_side_by_side(tmp_path: Path) -> None:
    def work(size: int) -> None:
        def own(x: Any) -> Any:
            return x * size + 1

        fast = compiled(own)
        fast(torch.ones(size))
        fast(torch.ones(size + 10))

    with observing(tmp_path / "run.log") as found:
        threads = [threading.Thread(target=work, args=(size,)) for size in (3, 4, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    # one code object: of the three functions the number is a constant, so each is a version too
    assert found[0].counts.compiles == found[0].counts.graphs == 1 + found[0].counts.recompiles
    assert {event.tid for event in found[0].of(DynamoCompile)} == {2, 3, 4}
    assert found[0].of(Dropped) == []


def test_an_exception_of_the_program_is_its_own(tmp_path: Path) -> None:
    def fails(x: Any) -> Any:
        y = x + 1
        raise KeyError("the user's")
        return y

    with pytest.raises(KeyError, match="the user's"), xlaprof.record(tmp_path / "run.log"):
        compiled(fails)(torch.ones(3))
    assert ours() == []


def test_an_exception_of_the_programs_is_no_finding_and_a_graph_that_has_to_be_whole_is_told(tmp_path: Path) -> None:
    def fails(x: Any) -> Any:
        y = x + 1
        if y.shape[0] == 3:
            raise KeyError("the user's")
        return y

    with observing(tmp_path / "run.log") as found:
        with pytest.raises(KeyError, match="the user's"):
            compiled(fails)(torch.ones(3))
        with pytest.raises(torch._dynamo.exc.Unsupported):
            compiled(lambda x: print(x.shape) or x + 1, fullgraph=True)(torch.ones(3))
    (finding,) = found[0].findings()
    assert "a call of it is an error: Dynamo cannot put print into a graph" in finding.cause
    assert "it cannot leave a graph that has to be whole (fullgraph=True, error_on_graph_break)" in finding.cause
    assert found[0].of(Dropped) == []


def test_compiled_autograd(tmp_path: Path) -> None:
    weight = torch.ones(3, requires_grad=True)
    with observing(tmp_path / "run.log") as found, torch._dynamo.config.patch(compiled_autograd=True):
        fast = compiled(lambda x: (x * weight).sum().backward())
        for _ in range(2):
            fast(torch.ones(3))
    assert weight.grad is not None
    assert found[0].counts.graphs >= 1
    assert found[0].of(Dropped) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_compiles_undisturbed_and_unrecorded(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import logging, os, sys, torch, xlaprof

        def double(x):
            return x * 2

        fast = torch.compile(double, backend="eager")
        with xlaprof.record(sys.argv[1]):
            fast(torch.ones(3))
            pid = os.fork()
            if pid == 0:
                fast(torch.ones(4))
                handlers = [type(one).__name__ for one in logging.getLogger("torch.__trace").handlers]
                os._exit(1 if "Handler" in handlers else 0)
            status = os.waitpid(pid, 0)[1]
            fast(torch.ones(5))
        sys.exit(os.waitstatus_to_exitcode(status))
        """
    )
    script = tmp_path / "forks.py"
    script.write_text(program)
    done = processes.run(str(script), str(tmp_path / "run.log"))
    assert done.returncode == 0, done.stderr
    from tests.sources.observed import Observed

    found = Observed(tmp_path / "run.log")
    assert [change[2:] for change in found.changes] == [("f32[3]", "f32[5]")]
    assert len(found.of(Recompile)) == 1


def test_torch_may_come_after_the_recording_began(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import sys, xlaprof

        with xlaprof.record(sys.argv[1]):
            assert "torch" not in sys.modules, "recording does not import it"
            import torch

            @torch.compile(backend="eager")
            def double(x):
                return x * 2

            double(torch.ones(3))
        """
    )
    script = tmp_path / "late.py"
    script.write_text(program)
    done = subprocess.run([sys.executable, script, tmp_path / "run.log"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    from tests.sources.observed import Observed

    assert Observed(tmp_path / "run.log").counts == Counts(compiles=1, graphs=1)


def test_a_recording_without_torch_leaves_no_hook(tmp_path: Path) -> None:
    program = "import sys, xlaprof\nfrom xlaprof.sources.registry import live_sources\nbefore = list(sys.meta_path)\n"
    program += "with xlaprof.record(sys.argv[1]):\n    hooks = len(sys.meta_path) - len(before)\n"
    program += "    assert hooks == len([source for source in live_sources() if source.module])\n"
    program += "assert sys.meta_path == before and 'torch' not in sys.modules\n"
    script = tmp_path / "plain.py"
    script.write_text(program)
    done = subprocess.run([sys.executable, script, tmp_path / "run.log"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
