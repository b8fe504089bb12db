"""The threads that run backward passes: one for each device, whatever came before, and gone when the process goes."""

from __future__ import annotations

import re
import subprocess
import textwrap
import threading
from pathlib import Path

import processes
import pytest
import torch

import xlaprof.runtime as xr
from xlaprof.runtime.pytorch import engine
from xlaprof.runtime.tape import tapes

from ..counting import counted  # noqa: TID252


def in_a_fresh_process(program: str) -> subprocess.CompletedProcess[str]:
    return processes.run("-c", textwrap.dedent(program))


@pytest.mark.slow
def test_a_process_ends_cleanly_however_soon_after_a_backward_pass() -> None:
    # Autograd's thread lets go of the pass while the interpreter goes down: one process in ten died of it.
    program = """
        import torch, xlaprof.runtime
        w = torch.ones(3, device="xla", requires_grad=True)
        (w * 2).sum().backward()
        """
    assert [in_a_fresh_process(program).returncode for _ in range(40)] == [0] * 40


def test_a_backward_pass_may_have_run_before_the_runtime_was_there() -> None:
    done = in_a_fresh_process(
        """
        import torch
        torch.ones(2, requires_grad=True).sum().backward()  # the engine counts devices now
        import xlaprof.runtime
        w = torch.ones(3, device="xla", requires_grad=True)
        h = torch.ones(3, requires_grad=True)
        ((w * 3).cpu() * h).sum().backward()
        print(w.grad.tolist(), h.grad.tolist())
        """
    )
    assert (done.returncode, done.stdout) == (0, "[3.0, 3.0, 3.0] [3.0, 3.0, 3.0]\n"), done.stderr


def test_anomaly_detection_may_be_on_from_the_beginning() -> None:
    done = in_a_fresh_process(
        """
        import torch, xlaprof.runtime as xr
        torch.autograd.set_detect_anomaly(True)
        w = torch.ones(3, device="xla", requires_grad=True)
        for _ in range(2):
            (w * 2).sum().backward()
            xr.sync()
        try:
            ((w - 1).sqrt() * 0).sum().backward()
        except RuntimeError as error:
            print(w.grad.tolist(), torch.is_anomaly_enabled(), error)
        """
    )
    said = "[4.0, 4.0, 4.0] True Function 'SqrtBackward0' returned nan values in its 0th output.\n"
    assert (done.returncode, done.stdout) == (0, said), done.stderr


def test_the_first_backward_pass_may_be_one_of_torch_func() -> None:
    done = in_a_fresh_process(
        """
        import torch, xlaprof.runtime
        x = torch.arange(3.0, device="xla")
        print(torch.func.grad(lambda x: (x * x).sum())(x).tolist())
        """
    )
    assert done.stdout == "[0.0, 2.0, 4.0]\n", done.stderr


def test_each_of_several_devices_runs_its_part_of_a_backward_pass() -> None:
    done = in_a_fresh_process(
        """
        import os, threading
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=3"
        import torch, xlaprof.runtime

        # a network laid over three devices
        a = torch.full((2,), 2.0, device="xla:0", requires_grad=True)
        b = torch.full((2,), 3.0, device="xla:1", requires_grad=True)
        c = torch.full((2,), 5.0, device="xla:2", requires_grad=True)
        ((a * 7).to("xla:1") * b).to("xla:2").mul(c).sum().backward()
        print([(str(t.grad.device), t.grad.tolist()) for t in (a, b, c)])

        # and three losses at a time
        def descend(w):
            for _ in range(10):
                (w * 3).sum().backward()

        leaves = [torch.zeros(2, device=f"xla:{i}", requires_grad=True) for i in range(3)]
        threads = [threading.Thread(target=descend, args=(w,)) for w in leaves]
        for t in threads: t.start()
        for t in threads: t.join()
        print([(str(w.grad.device), w.grad.tolist()) for w in leaves])
        """
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "[('xla:0', [105.0, 105.0]), ('xla:1', [70.0, 70.0]), ('xla:2', [42.0, 42.0])]"
    assert second == "[('xla:0', [30.0, 30.0]), ('xla:1', [30.0, 30.0]), ('xla:2', [30.0, 30.0])]"


def test_the_table_of_the_guard_is_read_from_the_header_that_came_with_torch() -> None:
    names = engine.virtual_functions(Path(engine._HEADER).read_text())
    assert names[0] == "type"
    assert names.index("queryEvent") + 1 == names.index("deviceCount")
    assert len(set(names)) == len(names)
    assert names[-1] == "~DeviceGuardImplInterface"


@pytest.mark.slow
def test_a_device_that_has_no_thread_is_explained() -> None:
    # As on a torch whose header is not installed: the engine then counts one device.
    done = in_a_fresh_process(
        """
        import os
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
        import torch
        exists = os.path.exists
        os.path.exists = lambda path: exists(path) and not path.endswith("DeviceGuardImplInterface.h")
        import xlaprof.runtime
        torch.ones(1, device="xla:0", requires_grad=True).sum().backward()
        torch.ones(1, device="xla:1", requires_grad=True).sum().backward()
        """
    )
    assert done.returncode == 1
    assert re.search("^RuntimeError: PyTorch's autograd engine has no thread for this xla device", done.stderr, re.M)


def test_gradients_add_up_whatever_threads_they_come_from() -> None:
    w = torch.arange(3.0, dtype=torch.float64).to("xla").requires_grad_()
    threads = [threading.Thread(target=lambda: (w * w).sum().backward()) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    xr.sync()
    assert w.grad is not None
    assert w.grad.tolist() == [0.0, 16.0, 32.0]


def test_what_the_thread_of_a_pass_still_holds_makes_no_program_of_its_own() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        (gradient,) = torch.autograd.grad((x * x).sum(), x)
        return gradient + 1

    x = torch.ones(7, device="xla", requires_grad=True)
    xr.sync()
    outs = []
    with counted() as counts:
        for round_ in range(3):
            outs.append(step(x))
            tape = tapes.tape()
            let_go = tape.let_go
            assert let_go is not None
            slow = list(tape.storages)  # what a thread has that was not fast enough
            tape.let_go = lambda slow=slow, let_go=let_go: (slow.clear(), let_go())
            if round_:
                slow.clear()
            xr.sync()
            assert tape.let_go is None
            assert not slow
    assert counts.compiles == 1
    assert torch.stack(outs).tolist() == [[3.0] * 7] * 3
