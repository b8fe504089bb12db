"""Modules that move: what a parameter is tied to, who trains it, and when a lazy one comes to be."""

from __future__ import annotations

import copy

import processes
import pytest
import torch
from torch import nn

import xlaprof.runtime as xr


class Speller(nn.Module):
    """An embedding and a head that share their weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.mix = nn.GRU(4, 4)
        self.head = nn.Linear(4, 6)
        self.head.weight = self.embed.weight
        self.embed.weight.note = "shared"

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        return self.head(self.mix(self.embed(letters))[0])


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, device: str) -> list[float]:
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.arange(3, device=device)).logsumexp(-1).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        xr.sync()
    return [float(loss) for loss in losses]


def test_a_tied_parameter_stays_one_and_an_optimizer_made_before_the_move_trains_it() -> None:
    torch.manual_seed(0)
    here, there = Speller(), Speller()
    there.load_state_dict(here.state_dict())
    losses = []
    for model, device in ((here, "cpu"), (there, "xla")):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        losses.append(trained(model.to(device), optimizer, device))
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert there.head.weight is there.embed.weight
    assert there.embed.weight.note == "shared"
    double = copy.deepcopy(there)
    assert double.head.weight is double.embed.weight is not there.embed.weight
    there.cpu()
    assert there.head.weight is there.embed.weight
    assert type(there.head.weight) is nn.Parameter
    torch.testing.assert_close(there.state_dict(), here.state_dict())


@pytest.mark.parametrize("direct", [False, True])
def test_lazy_modules_take_their_shapes_and_the_cpus_first_weights(direct: bool) -> None:
    def made(**where: str) -> nn.Module:
        return nn.Sequential(
            nn.LazyConv2d(4, 3, **where), nn.LazyBatchNorm2d(**where), nn.Flatten(), nn.LazyLinear(3, **where)
        )

    x = torch.randn(2, 3, 6, 6)
    torch.manual_seed(0)
    expected = made()(x)
    model = made(device="xla") if direct else made().to("xla")
    torch.manual_seed(0)
    out = model(x.to("xla"))
    assert {str(value.device) for value in model.state_dict().values()} == {"xla:0"}
    assert type(model[3]) is nn.Linear
    torch.testing.assert_close(out.cpu(), expected)
    out.sum().backward()
    assert model[0].weight.grad.shape == (4, 3, 3, 3)


def test_whether_torch_xla_is_installed_may_be_asked() -> None:
    program = "import importlib.util, xlaprof.runtime; print(importlib.util.find_spec('torch_xla'))"
    done = processes.run("-c", program)
    assert done.stdout == "None\n", done.stderr


def test_a_compiled_function_may_assign_a_buffer() -> None:
    """Nothing of ours may be in Dynamo's way there: a hook on the registration of buffers would be traced."""

    class Latest(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("latest", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.latest = x * 2
            return x + self.latest

    assert torch._dynamo.explain(Latest())(torch.ones(3)).graph_break_count == 0


def its_own(model: nn.Module) -> tuple[list[nn.Parameter], torch.optim.Optimizer]:
    """The optimizer is made before the move, as scripts for one GPU have it."""
    return list(model.parameters()), torch.optim.SGD(model.parameters(), lr=0.5)


def of_an_older_list(model: nn.Module) -> tuple[list[nn.Parameter], torch.optim.Optimizer]:
    before = list(model.parameters())
    model.to("xla")
    return before, torch.optim.SGD(before, lr=0.5)


def a_copy(model: nn.Module) -> tuple[list[nn.Parameter], torch.optim.Optimizer]:
    """A model and its optimizer are copied as one."""
    model.twin, optimizer = copy.deepcopy((model, torch.optim.SGD(model.parameters(), lr=0.5)))
    return list(model.parameters()), optimizer


@pytest.mark.parametrize("made", [its_own, of_an_older_list, a_copy])
def test_an_optimizer_follows_the_module_whenever_it_was_made(made) -> None:
    model = nn.Linear(2, 1)
    before, optimizer = made(model)
    model.to("xla")
    parameters = list(getattr(model, "twin", model).parameters())
    assert [id(one) for one in optimizer.param_groups[0]["params"]] == [id(one) for one in parameters]
    assert not any(one is two for one in before for two in parameters)


def test_an_optimizer_made_before_the_runtime_follows_too() -> None:
    done = processes.run(
        "-c",
        """
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
import xlaprof.runtime
model.to("xla")
assert all(one is two for one, two in zip(optimizer.param_groups[0]["params"], model.parameters(), strict=True))
""",
    )
    assert done.returncode == 0, done.stderr
