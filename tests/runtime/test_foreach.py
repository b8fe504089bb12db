"""Operators over lists of tensors (``_foreach_*``): one recorded operation per tensor, the same graph as the loop's."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
from torch.testing._internal import common_methods_invocations as database
from torch.utils._pytree import tree_map_only

import xlaprof.runtime as xr

from .counting import counted

OPERATORS = [
    *database.foreach_unary_op_db,
    *database.foreach_binary_op_db,
    *database.foreach_pointwise_op_db,
    *database.foreach_reduce_op_db,
    *database.foreach_other_op_db,
]

#: samples of each operator: enough for every kind of scalar, list and tensor argument
SAMPLES = 12


def tensors(*sizes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.rand(size, generator=generator) + 0.5 for size in sizes]


def on_xla(value: Any) -> Any:
    return tree_map_only(torch.Tensor, lambda t: t.detach().to("xla"), value)


def test_what_optimizers_use_gives_the_cpus_values_in_one_run() -> None:
    a, b = tensors((3,), (2, 2), ()), tensors((3,), (2, 2), ())
    calls: list[tuple[Any, ...]] = [
        (torch._foreach_add, a, b),
        (torch._foreach_add, a, 0.25),
        (torch._foreach_sub, a, [0.5, 1.0, 2.0]),
        (torch._foreach_mul, a, torch.tensor(0.75)),
        (torch._foreach_div, a, b),
        (torch._foreach_lerp, a, b, 0.3),
        (torch._foreach_addcmul, a, a, b, 0.7),
        (torch._foreach_addcdiv, a, a, b, [0.7, 0.1, 2.0]),
        (torch._foreach_maximum, a, b),
        (torch._foreach_pow, a, 2.0),
        (torch._foreach_pow, 2.0, a),
        (torch._foreach_sqrt, a),
        (torch._foreach_reciprocal, a),
        (torch._foreach_sign, a),
        (torch._foreach_norm, a),
        (torch._foreach_norm, a, 1),
        (torch._foreach_max, a),
    ]
    expected = [call(*arguments) for call, *arguments in calls]
    ours = on_xla(calls)
    with counted() as cost:
        got = [call(*arguments) for call, *arguments in ours]
        xr.sync()
    assert (cost.runs, cost.reads) == (1, 0)
    assert not [name for name in cost if name.startswith("aten::") and cost[name]]
    for one, other in zip(itertools.chain(*got), itertools.chain(*expected), strict=True):
        torch.testing.assert_close(one.cpu(), other)


def test_in_place_every_tensor_is_written() -> None:
    plain = tensors((3,), (2, 2))
    ours = on_xla(plain)
    view = ours[1][0]
    for values in (plain, ours):
        torch._foreach_add_(values, 1.0)
        torch._foreach_mul_(values, [2.0, 3.0])
        torch._foreach_lerp_(values, [torch.ones_like(v) for v in values], 0.25)
        torch._foreach_sqrt_(values)
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one.cpu(), other)
    torch.testing.assert_close(view.cpu(), plain[1][0])
    torch._foreach_zero_(ours)
    torch._foreach_copy_(ours[:1], on_xla(plain[:1]))
    torch.testing.assert_close(ours[0].cpu(), plain[0])
    assert ours[1].tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_the_graph_is_that_of_the_loop() -> None:
    def step(foreach: bool) -> int:
        a, b = (on_xla(tensors((5,), (7,))) for _ in range(2))
        xr.sync()
        with counted() as cost:
            if foreach:
                torch._foreach_addcmul_(a, b, b, 0.35)
            else:
                for one, other in zip(a, b, strict=True):
                    one.addcmul_(other, other, value=0.35)
            xr.sync()
        return cost.compiles

    assert (step(foreach=False), step(foreach=True)) == (1, 0)


def test_gradients_go_through_lists() -> None:
    def gradient(device: str) -> list[torch.Tensor]:
        leaves = [t.to(device).requires_grad_() for t in tensors((3,), (2, 2))]
        out = torch._foreach_mul(torch._foreach_exp(leaves), 0.5)
        sum(o.sum() for o in torch._foreach_add(out, leaves)).backward()  # type: ignore[union-attr]
        return [leaf.grad.cpu() for leaf in leaves]  # type: ignore[union-attr]

    for one, other in zip(gradient("xla"), gradient("cpu"), strict=True):
        torch.testing.assert_close(one, other)


def test_lists_on_two_devices_are_refused() -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch._foreach_maximum(on_xla(tensors((2,))), tensors((2,)))
    with pytest.raises(RuntimeError, match=r"must have the same number of (elements|tensors)"):
        torch._foreach_add(on_xla(tensors((2,))), on_xla(tensors((2,), (2,))))


@pytest.mark.slow
@pytest.mark.parametrize("info", OPERATORS, ids=lambda info: info.name)
@pytest.mark.parametrize("inplace", [False, True], ids=["functional", "in_place"])
def test_pytorchs_samples(info: Any, inplace: bool) -> None:
    operator = info.inplace_variant if inplace else info.method_variant
    if operator is None:
        pytest.skip("there is no such variant")
    pairs = []
    samples = info.sample_inputs("cpu", torch.float32, noncontiguous=False, num_input_tensors=[3])
    for sample in itertools.islice(samples, SAMPLES):
        for argument in ("disable_fastpath", "disable_vs_ordering"):
            sample.kwargs.pop(argument, None)
        ours = copy.deepcopy(on_xla((sample.input, sample.args, sample.kwargs)))
        try:
            returned = operator(sample.input, *sample.args, **sample.kwargs)
        except (RuntimeError, IndexError) as error:
            with pytest.raises(type(error)):
                operator(ours[0], *ours[1], **ours[2])
            continue
        got = operator(ours[0], *ours[1], **ours[2])
        # samples share tensors: what is in place now is overwritten by the next
        expected = [t.clone() for t in (sample.input if inplace else returned)]
        pairs.append((ours[0] if inplace else got, expected))
    xr.sync()
    assert pairs
    for got, expected in pairs:
        for one, other in zip(got, expected, strict=True):
            torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-5, equal_nan=True)
