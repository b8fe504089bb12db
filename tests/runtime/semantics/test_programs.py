"""Whatever views, writes, gathers, reductions, control flow, gradients and barriers a program has: as on the CPU.

A test's name has the seeds of its programs; :func:`.programs.check` shows the smallest part of one that goes wrong.
"""

from __future__ import annotations

import pytest
import torch

from . import programs
from .programs import Line, as_script, check, disagreement, forget, minimal

AT_ONCE = 20


@pytest.fixture(autouse=True)
def no_programs_left():
    yield
    forget()


@pytest.mark.one_in(8)
@pytest.mark.parametrize("first", range(0, 300, AT_ONCE))
def test_programs(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        check(seed, 4)


def test_every_family_is_among_them() -> None:
    text = "\n".join(line.text for seed in range(300) for line in programs.program(seed, 4))
    for part in (".select(", "index_put_(", "accumulate=True", ".scatter", ".gather(", ".cumsum(", ".sort(", ".topk(",
                 "keepdim=True", "torch.where(", "for _ in", "while", "cond(", "backward(", "barrier()", ".tolist()",
                 "torch.bfloat16", "torch.bool", "torch.int32", "(0, 2)", "reshape(())"):  # fmt: skip
        assert part in text, part


def test_what_is_left_of_a_program_that_goes_wrong_runs_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs.xr, "sync", lambda: None)
    lines = [Line(text) for text in (
        "t0 = torch.arange(6).to(torch.float32).to(device)", "t1 = torch.ones(2).to(device)", "t1.add_(1)",
        "t2 = own(t0 + (3 if device == 'xla' else 2))", "print(t1.tolist())", "t3 = t2.view(2, 3)",
    )]  # fmt: skip
    assert disagreement(lines).startswith("t2 is [3.0")
    less = minimal(lines)
    assert [line.text for line in less] == [lines[0].text, lines[3].text]
    names: dict[str, object] = {}
    exec(as_script(less), names)
    assert isinstance(names["t2"], torch.Tensor)
