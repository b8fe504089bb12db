"""Whatever views, writes in place and barriers a program has, it gives what it gives on the CPU."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

from .programs import Run, Statement, bases, programs, state

Begin = list[tuple[tuple[int, ...], torch.dtype]]


def check(begin: Begin, program: list[Statement]) -> None:
    here, there = Run(begin, "cpu"), Run(begin, "xla")
    expected, left_out = here.go(program)
    told, _ = there.go(program, left_out)
    assert told == expected
    assert [state(t) for t in there.tensors] == [state(t) for t in here.tensors]
    for mine, theirs in zip(there.values(), here.values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)


@settings(max_examples=25)
@given(bases, programs(0, 12))
def test_a_program_gives_what_the_cpu_gives(begin: Begin, program: list[Statement]) -> None:
    check(begin, program)


@pytest.mark.slow
@settings(max_examples=2000)
@given(bases, programs(6, 18))
def test_thousands_of_programs(begin: Begin, program: list[Statement]) -> None:
    check(begin, program)
