"""LSTMs, GRUs and RNNs on ``xla``: the CPU's values and gradients, from two operations per layer."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import xlaprof.runtime as xr
from xlaprof.runtime import parity

from .counting import counted

STEPS, BATCH, INPUTS, SIZE = 4, 3, 5, 7

Program = Callable[[nn.Module, torch.Tensor], Any]

LAYERS: dict[str, Callable[..., nn.Module]] = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "tanh": nn.RNN,
    "relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
}
CASES = [
    pytest.param("lstm", {"num_layers": 2, "bidirectional": True}, marks=pytest.mark.slow),
    ("lstm", {"batch_first": True, "bias": False}),
    pytest.param("gru", {"bidirectional": True}, marks=pytest.mark.slow),
    ("gru", {}),
    ("tanh", {}),
    ("relu", {}),
]


def same(make: Callable[..., nn.Module], options: dict[str, Any], program: Program) -> None:
    """What ``program`` returns of the layers, and of a sequence, is the same on the CPU and on ``xla``."""
    torch.manual_seed(0)
    layers = make(INPUTS, SIZE, **options).double()
    sequence = torch.randn(STEPS, BATCH, INPUTS, dtype=torch.float64)
    told = []
    for device in ("cpu", "xla"):
        x = sequence.clone().to(device).requires_grad_()
        found = program(copy.deepcopy(layers).to(device), x)
        told.append([t.detach().cpu() for t in tree_leaves(found) if isinstance(t, torch.Tensor)])
    assert len(told[0]) == len(told[1])
    for expected, got in zip(*told, strict=True):
        torch.testing.assert_close(got, expected)


def recorded() -> Counter[str]:
    """How often each operation was recorded."""
    names = [name for name in xr.metrics.counter_names() if name.startswith("xla::")]
    return Counter({name.removeprefix("xla::"): xr.metrics.counter_value(name) or 0 for name in names})


def trained(layers: nn.Module, x: torch.Tensor) -> Any:
    """Values of each step and of the last, and the gradients of all that has some."""
    out, last = layers(x)
    sum((t * t.detach().cos()).sum() for t in tree_leaves((out, last))).backward()
    return out, last, x.grad, [parameter.grad for parameter in layers.parameters()]


@pytest.mark.parametrize(("kind", "options"), CASES)
def test_values_and_gradients(kind: str, options: dict[str, Any]) -> None:
    same(LAYERS[kind], options, trained)


def _with_states(layers: nn.Module, x: torch.Tensor) -> Any:
    states = tuple(torch.ones(1, BATCH, SIZE, dtype=x.dtype, device=x.device) for _ in range(2))
    _, states = layers(x, states)
    out, states = layers(x, states)
    (out.sum() + states[1].sum()).backward()  # a part of what comes out has gradients
    return x.grad, [parameter.grad for parameter in layers.parameters()]


def _frozen(layers: nn.Module, x: torch.Tensor) -> Any:
    layers.requires_grad_(False)
    layers(x)[0].square().sum().backward()
    return x.grad


def _recomputed(layers: nn.Module, x: torch.Tensor) -> Any:
    checkpoint(lambda x: layers(x)[0], x, use_reentrant=False).square().sum().backward()
    return x.grad


def _inferred(layers: nn.Module, x: torch.Tensor) -> Any:
    with torch.inference_mode():
        return layers(x.detach())


def _gradient_penalty(layers: nn.Module, x: torch.Tensor) -> Any:
    (slope,) = torch.autograd.grad(layers(x)[0].square().sum(), x, create_graph=True)
    (slope.norm() - 1).square().backward()
    return [parameter.grad for parameter in layers.parameters()]


def _of_lengths(layers: nn.Module, x: torch.Tensor) -> Any:
    out, last = layers(pack_padded_sequence(x, [4, 3, 2]))
    return out.data, last


def _transformed(layers: nn.Module, x: torch.Tensor) -> Any:
    def loss(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.func.functional_call(layers, parameters, (x.detach(),))[0].square().sum()

    return torch.func.grad(loss)(dict(layers.named_parameters()))


@pytest.mark.one_in(8)
@pytest.mark.parametrize(
    "program",
    [
        _with_states,
        _frozen,
        _recomputed,
        _inferred,
        pytest.param(_gradient_penalty, marks=pytest.mark.slow),
        _of_lengths,
        _transformed,
    ],
)
def test_in_every_use(program: Program) -> None:
    same(nn.LSTM, {}, program)


@pytest.mark.slow
def test_projections() -> None:
    same(nn.LSTM, {"proj_size": 2}, trained)


def test_a_sequence_is_one_operation_forward_and_one_backward_however_long() -> None:
    layers = nn.LSTM(INPUTS, SIZE, num_layers=2).to("xla")
    before = recorded()
    with counted() as counts:
        layers(torch.ones(50, BATCH, INPUTS, device="xla"))[0].sum().backward()
        xr.sync()
    found = recorded() - before
    assert (found["xla.recurrent_layer"], found["xla.recurrent_layer_backward"]) == (2, 2)
    assert found.total() < 30
    assert (counts.compiles, counts.runs, counts.reads) == (1, 1, 0)


def test_strict_parity_records_each_step_as_pytorch_xla_does() -> None:
    layers = nn.GRU(INPUTS, SIZE).to("xla")
    before = recorded()
    parity.set_strict(True)
    try:
        layers(torch.ones(STEPS, BATCH, INPUTS, device="xla"))
        xr.sync()
    finally:
        parity.set_strict(False)
    found = recorded() - before
    assert (found["xla.recurrent_layer"], found["tanh"]) == (0, STEPS)


def test_autocast_computes_the_gates_in_the_lower_precision() -> None:
    torch.manual_seed(0)
    layers = nn.GRU(INPUTS, SIZE)
    x = torch.randn(STEPS, BATCH, INPUTS)
    expected = layers(x)[0]
    with torch.autocast("xla", dtype=torch.bfloat16):
        found = layers.to("xla")(x.to("xla"))[0]
    difference = (found.float().cpu() - expected).abs().max().item()
    assert 0 < difference < 0.02


def test_what_does_not_fit_is_refused_in_pytorchs_words() -> None:
    told = []
    for device in ("cpu", "xla"):
        layers = nn.LSTM(INPUTS, SIZE).double().to(device)
        x = torch.ones(STEPS, BATCH, INPUTS + 1, dtype=torch.float64, device=device)
        states = [torch.zeros(1, BATCH, SIZE, dtype=torch.float64, device=device)] * 2
        with pytest.raises(RuntimeError) as caught:
            torch.lstm(x, states, list(layers.parameters()), True, 1, 0.0, False, False, False)
        told.append(str(caught.value).split("\n")[0])
    assert told[0] == told[1]
