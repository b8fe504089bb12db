"""Gradients through views and writes in place: autograd sees on xla what it sees on the CPU.

Where memory has strides PyTorch describes a view by them; on xla it replays the view operators. Both have to tell of
every write which of the base's gradients it cut off, and where its own go.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import xlaprof.runtime as xr

from .programs import MOST, TOGETHER, VALUES, VIEWS, Run, Statement, Tensor

Write = Callable[[Tensor, Tensor, int, int], object]


def _without_history(t: Tensor, o: Tensor, a: int, b: int) -> None:
    with torch.no_grad():
        t.mul_(a)


#: writes with a gradient, or without one on purpose
WRITES: dict[str, Write] = {
    "mul_": lambda t, o, a, b: t.mul_(a - 3.5),
    "sin_": lambda t, o, a, b: t.sin_(),
    "square": lambda t, o, a, b: t.copy_(t.clone() ** 2),
    "fill_": lambda t, o, a, b: t.fill_(a),
    "zero_": lambda t, o, a, b: t.zero_(),
    "fill_ with": lambda t, o, a, b: t.fill_(o.sum().sin()),
    "copy_ part": lambda t, o, a, b: t.copy_(o.flatten()[: t.shape[-1]].clone() if t.dim() else o.sum()),
    "mul_ other": lambda t, o, a, b: t.mul_(o.clone().sin()),
    "masked_fill_": lambda t, o, a, b: t.masked_fill_(t > a - 3, b),
    "set row": lambda t, o, a, b: t.__setitem__(a % t.shape[0], o.sum().sin()),
    "set step": lambda t, o, a, b: t.__setitem__(slice(a % 2, None, 2), b),
    "set at": lambda t, o, a, b: t.__setitem__(torch.tensor([a % t.shape[0]], device=t.device), o.sum().cos()),
    "index_add_": lambda t, o, a, b: t.index_add_(0, torch.tensor([a % t.shape[0]], device=t.device), t[:1].cos()),
    "no_grad": _without_history,
    "data": lambda t, o, a, b: t.data.mul_(a),
    "detach": lambda t, o, a, b: t.detach().add_(1),
}
RESHAPES: dict[str, Write] = {
    "t_": lambda t, o, a, b: t.t_(),
    "transpose_": lambda t, o, a, b: t.transpose_(a % t.dim(), b % t.dim()),
    "squeeze_": lambda t, o, a, b: t.squeeze_(),
    "unsqueeze_": lambda t, o, a, b: t.unsqueeze_(a % (t.dim() + 1)),
    "requires_grad_": lambda t, o, a, b: t.requires_grad_(),
}
VERBS = {
    "views": {k: v for k, v in VIEWS.items() if k != "bits"},
    "writes": WRITES | {k: v for k, v in TOGETHER.items() if "=" not in k},
    "reshapes": RESHAPES,
    "values": {k: VALUES[k] for k in ("sum over", "amax", "plus", "clone", "reshape", "cat", "take")},
    "barrier": {"sync": None},
}


class Differentiated(Run):
    """Two leaves, what is computed from them, and the gradients of everything that is alive in the end."""

    def __init__(self, device: str) -> None:
        super().__init__([], device)
        self.leaves = [
            (torch.arange(n, dtype=torch.float64) / 4 - 1).reshape(shape).to(device).requires_grad_()
            for n, shape in ((12, (3, 4)), (4, (1, 4)))
        ]
        self.tensors = [leaf * 1.5 for leaf in self.leaves] + [torch.ones(3, 4, dtype=torch.float64).to(device)]

    def _chancy(self, s: Statement) -> bool:
        if "strided" in s.verb and self._operands(s)[0]._is_view():
            # Of elements that the view does not show PyTorch has two gradients: none, until the base is written to and
            # it describes the view anew, over all of the storage.
            return True
        return super()._chancy(s._replace(verb="add_ other")) if s.verb in VERBS["writes"] else False

    def _do(self, s: Statement) -> Any:
        t, o = self._operands(s)
        if s.verb == "sync":
            if self.device == "xla":
                xr.sync()
        elif s.verb in VERBS["views"]:
            self._keep(VERBS["views"][s.verb](t, s.a, s.b))
        elif s.verb in VERBS["values"]:
            value = VERBS["values"][s.verb](t, o, s.a, s.b)
            self._keep(value.clone(memory_format=torch.contiguous_format))
        else:
            (VERBS["writes"] | RESHAPES)[s.verb](t, o, s.a, s.b)
        return None

    def backward(self) -> tuple[list[Any], list[Tensor]]:
        """What each tensor is to autograd, and the gradients of the leaves; or the error's type."""
        kinds: list[Any] = []
        try:
            kinds += [(t.requires_grad, t.is_leaf, t._version) for t in self.tensors]
            loss = sum(((t * t.clone().cos()).sum() for t in self.tensors if t.numel()), start=self.leaves[0].sum())
            loss.backward()
        except RuntimeError as error:
            return [*kinds, type(error).__name__], []
        return kinds, [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in self.leaves]


number = st.integers(0, 7)
verbs = st.one_of([st.sampled_from(sorted(kind)) for kind in (VERBS["views"], *VERBS.values())])


def programs(most: int) -> st.SearchStrategy[list[Statement]]:
    return st.lists(st.builds(Statement, verbs, number, number, number, number), min_size=2, max_size=most)


def check(program: list[Statement]) -> None:
    here, there = Differentiated("cpu"), Differentiated("xla")
    expected, left_out = here.go(program)
    told, _ = there.go(program, left_out)
    assert told == expected
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (kinds, gradients), (theirs, expected_gradients) = there.backward(), here.backward()
    assert kinds == theirs
    there.tensors = [*there.tensors[:MOST], *gradients]
    here.tensors = [*here.tensors[:MOST], *expected_gradients]
    for mine, other in zip(there.values(), here.values(), strict=True):
        torch.testing.assert_close(mine, other, equal_nan=True)


@settings(max_examples=12)
@given(programs(8))
def test_gradients_of_a_program_are_the_cpus(program: list[Statement]) -> None:
    check(program)


@pytest.mark.slow
@settings(max_examples=600)
@given(programs(12))
def test_gradients_of_many_programs(program: list[Statement]) -> None:
    check(program)
