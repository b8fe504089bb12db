"""Every optimizer of ``torch.optim`` on ``xla``: the CPU's parameters, one graph from the first step on, nothing read.

The cases are those of PyTorch's own optimizer database; ``cuda`` is what it calls a device with capturable optimizers.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.optimizer import _get_capturable_supported_devices
from torch.testing._internal.common_optimizers import OptimizerErrorEnum, optim_db

import xlaprof.runtime as xr

from .counting import counted
from .optimizing import assert_same, making, small, train

#: steps until no other graph comes, for the first step is as all others, except where the formula is another:
#: RAdam begins to rectify at its sixth step, SGD leaves out the dampening in its first
WARM_UP = {"RAdam": 6}
WARM_UP_DAMPENED = 2

#: values that PyTorch's own code reads per parameter and step, on any accelerator (``.item()``): Adafactor's clipping
#: needs two norms, ASGD keeps step, eta and mu on the parameter's device (with ``foreach=True`` it asks for the step
#: alone). ASGD(capturable=True) reads none.
READS = {"Adafactor": 2, "ASGD": 3}
READS_FOREACH = READS | {"ASGD": 1}

#: implementations with capturable=True that PyTorch has for xla: with foreach=False, and with foreach=True
CAPTURABLE = {"Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"}
CAPTURABLE_FOREACH = {"RMSprop", "Rprop"}

DENSE = [info for info in optim_db if not info.only_supports_sparse_grads and info.name != "LBFGS"]


def cases() -> list[Any]:
    """Every optimizer with all its documented flags; the default and a capturable one are in the fast suite."""
    found = []
    for info in DENSE:
        fast = {False, True}
        for number, given in enumerate(info.optim_inputs_func(device="cuda", dtype=torch.float32)):
            capturable = bool(given.kwargs.get("capturable"))
            if capturable and info.name not in CAPTURABLE:
                continue
            both = "foreach" in info.supported_impls and (not capturable or info.name in CAPTURABLE_FOREACH)
            loops = [False, True] if both else [False]
            for foreach in loops:
                kwargs = dict(given.kwargs)
                if "foreach" in info.supported_impls:
                    kwargs["foreach"] = foreach
                marks = [] if capturable in fast and not foreach else [pytest.mark.slow]
                fast -= set() if foreach else {capturable}
                name = f"{info.name}-{number}-{given.desc}" + ("-foreach" if foreach else "")
                found.append(pytest.param(info.optim_cls, kwargs, id=name.replace(" ", "_"), marks=marks))
    return found


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("optimizer", "kwargs"), cases())
def test_steps_give_the_parameters_of_the_cpu_and_settle(optimizer: type[Optimizer], kwargs: dict[str, Any]) -> None:
    dampened = bool(kwargs.get("dampening") and kwargs.get("momentum"))
    warm_up = WARM_UP_DAMPENED if dampened else WARM_UP.get(optimizer.__name__, 1)
    xr.forget_graphs()

    def model() -> nn.Module:
        return small(bias=optimizer is not torch.optim.Muon)

    expected, _ = train(making(optimizer, kwargs, "cpu"), "cpu", warm_up + 2, model)
    got, counts = train(making(optimizer, kwargs, "xla"), "xla", warm_up + 2, model)

    assert_same(got, expected)
    table = READS_FOREACH if kwargs.get("foreach") else READS
    reads = 0 if kwargs.get("capturable") else table.get(optimizer.__name__, 0) * len(got)
    assert reads or counts[0].compiles == 1
    for cost in counts[warm_up:]:
        assert (cost.compiles, cost.reads) == (0, reads)
        assert cost.runs == 1 or reads
        assert fallbacks(cost) == set()


def fallbacks(counts: dict[str, int]) -> set[str]:
    return {name for name, n in counts.items() if name.startswith("aten::") and n} - {"aten::_local_scalar_dense"}


def test_pytorch_lists_xla_among_the_devices_of_capturable_optimizers() -> None:
    assert "xla" in _get_capturable_supported_devices()
    parameter = nn.Parameter(torch.ones(2, device="xla"))
    parameter.grad = torch.ones_like(parameter)

    for refused in (
        torch.optim.Adadelta([parameter], capturable=True),
        Adam([parameter], capturable=True, foreach=True),
    ):
        with pytest.raises(AssertionError, match="must be on supported devices"):
            refused.step()


def test_a_learning_rate_on_the_device_may_change_there() -> None:
    def losses(device: str) -> torch.Tensor:
        weight = nn.Parameter(torch.ones(3, device=device))
        lr = torch.tensor(0.1, device=device)
        optimizer = Adam([weight], lr=lr, capturable=device == "xla")
        for _ in range(4):
            weight.grad = torch.full_like(weight, 2.0)
            optimizer.step()
            lr.mul_(0.5)
            xr.sync()
        return weight.detach().cpu()

    torch.testing.assert_close(losses("xla"), losses("cpu"))


FUSED: list[tuple[type[Optimizer], dict[str, Any]]] = [
    (Adam, {"weight_decay": 0.1, "amsgrad": True}),
    (AdamW, {"maximize": True}),
    (SGD, {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1}),
    (SGD, {"momentum": 0.9, "nesterov": True}),
    (SGD, {}),
    (torch.optim.Adagrad, {"lr_decay": 0.1, "weight_decay": 0.1}),
]


@pytest.mark.parametrize(("optimizer", "options"), FUSED)
def test_fused_is_one_graph_that_reads_nothing(optimizer: type[Optimizer], options: dict[str, Any]) -> None:
    def trained(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        weights = [nn.Parameter(torch.randn(shape).to(device)) for shape in ((3,), (2, 2))]
        stepping = optimizer(weights, lr=0.1, fused=True, **options)  # type: ignore[call-arg]
        for number in range(4):
            with counted() as counts:
                for weight in weights:
                    weight.grad = weight.detach() * 2 + (number + 2)
                stepping.step()
                xr.sync()
        assert device == "cpu" or (counts.runs, counts.reads) == (1, 0)
        assert number == 0 or options.get("dampening") or counts.compiles == 0
        return [weight.detach().cpu() for weight in weights]

    torch.testing.assert_close(trained("xla"), trained("cpu"))


def test_fused_skips_the_step_that_found_infinities() -> None:
    weight = nn.Parameter(torch.ones(2, device="xla"))
    optimizer = Adam([weight], lr=0.1, fused=True)
    scaler = torch.amp.GradScaler("xla", init_scale=4.0)
    scaler.scale(torch.ones(1, device="xla"))
    for gradient in (1.0, float("inf"), 1.0):
        weight.grad = torch.full_like(weight, 4 * gradient)
        scaler.step(optimizer)
        scaler.update()
    torch.testing.assert_close(weight.detach().cpu(), torch.full((2,), 0.8), rtol=0, atol=0.03)
    assert scaler.get_scale() == 2.0


def test_sparse_gradients_are_refused_with_the_way_out() -> None:
    table = nn.Embedding(5, 3, sparse=True).to("xla")

    with pytest.raises(RuntimeError, match=r"sparse_coo tensor cannot live on xla: .*sparse=False"):
        table(torch.tensor([1, 2], device="xla")).sum().backward()


@pytest.mark.parametrize("info", [i for i in DENSE if i.optim_error_inputs_func is not None], ids=lambda i: i.name)
def test_wrong_arguments_raise_what_they_raise_on_the_cpu(info: Any) -> None:
    for wrong in info.optim_error_inputs_func(device="cpu", dtype=torch.float32):
        given = wrong.optimizer_error_input
        parameters = on_xla(given.params)
        if given.params is None:
            parameters = [nn.Parameter(torch.ones(1, 1, device="xla"))]
        match = wrong.error_regex.replace("with dense", ".*")
        if wrong.error_on is OptimizerErrorEnum.CONSTRUCTION_ERROR:
            expectation: Any = pytest.warns if issubclass(wrong.error_type, Warning) else pytest.raises
            with expectation(wrong.error_type, match=match):
                info.optim_cls(parameters, **given.kwargs)
        else:
            optimizer = info.optim_cls(parameters, **given.kwargs)
            with pytest.raises(wrong.error_type, match=match):
                optimizer.step()


def on_xla(value: Any, moved: dict[int, torch.Tensor] | None = None) -> Any:
    """``value`` with its tensors on the device; one that is in it twice is there twice again."""
    moved = {} if moved is None else moved
    if isinstance(value, torch.Tensor):
        if id(value) not in moved:
            there = moved[id(value)] = value.detach().to("xla").requires_grad_(value.requires_grad)
            there.grad = None if value.grad is None else value.grad.to("xla")
        return moved[id(value)]
    if isinstance(value, dict):
        return {name: on_xla(item, moved) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(on_xla(item, moved) for item in value)
    return value


@pytest.mark.parametrize("info", [i for i in DENSE if "differentiable" in i.supported_impls], ids=lambda i: i.name)
def test_gradients_flow_through_a_differentiable_step(info: Any) -> None:
    def gradient(device: str) -> torch.Tensor:
        start = torch.tensor([0.5, -1.0, 2.0], device=device, requires_grad=True)
        weight = start.clone()
        optimizer = info.optim_cls([weight], lr=0.1, differentiable=True)
        weight.grad = start.sin() + weight * 0.5
        optimizer.step()
        return torch.autograd.grad(weight.square().sum(), start)[0].cpu()

    torch.testing.assert_close(gradient("xla"), gradient("cpu"), rtol=1e-4, atol=1e-5)


# -- LBFGS --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_reads_what_it_reads_on_the_cpu(search: str | None) -> None:
    """It decides by values: each decision is a read, and what was recorded since the last barrier is part of it.

    A barrier in the closure keeps those graphs small; when its history is full, they repeat.
    """

    def run(device: str, steps: int) -> tuple[torch.Tensor, list[int], list[int]]:
        torch.manual_seed(0)
        network = nn.Linear(3, 1, bias=False)
        x, y = torch.randn(8, 3), torch.randn(8, 1)
        network, x, y = network.to(device), x.to(device), y.to(device)
        optimizer = torch.optim.LBFGS(network.parameters(), lr=0.1, max_iter=2, history_size=2, line_search_fn=search)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(network(x), y)
            loss.backward()
            xr.sync()
            return loss

        reads, compiles = [], []
        for _ in range(steps):
            with counted() as cost, reading() as on_cpu:
                optimizer.step(closure)
                xr.sync()
            reads.append(cost.reads if device == "xla" else on_cpu.reads)
            compiles.append(cost.compiles)
        return next(network.parameters()).detach().cpu(), reads, compiles

    expected, reads_on_cpu, _ = run("cpu", 6)
    got, reads, compiles = run("xla", 6)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert reads == reads_on_cpu
    if search is None:  # a line search looks at as many points as it needs
        assert compiles[-2:] == [0, 0]


class reading(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts the scalars read."""

    reads = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.reads += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


# -- an optimizer's life ------------------------------------------------------------------------------


def test_a_run_goes_on_from_its_saved_state_on_either_device() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(6, 4), torch.randn(6, 2)

    def steps(network: nn.Module, optimizer: Optimizer, device: str, number: int) -> None:
        for _ in range(number):
            optimizer.zero_grad()
            nn.functional.mse_loss(network(x.to(device)), y.to(device)).backward()
            optimizer.step()
            xr.sync()

    def made(device: str) -> tuple[nn.Module, Optimizer]:
        network = small().to(device)
        return network, Adam(network.parameters(), lr=0.05, amsgrad=True)

    one, first = made("cpu")
    state = copy.deepcopy(one.state_dict())
    steps(one, first, "cpu", 6)

    begun, second = made("xla")
    begun.load_state_dict(state)
    steps(begun, second, "xla", 2)
    third_network, third = made("cpu")  # xla -> cpu
    third_network.load_state_dict({name: value.cpu() for name, value in begun.state_dict().items()})
    third.load_state_dict(second.state_dict())
    assert {value.device.type for state in third.state.values() for value in state.values()} == {"cpu"}
    steps(third_network, third, "cpu", 2)
    last_network, last = made("xla")  # cpu -> xla
    last_network.load_state_dict(third_network.state_dict())
    last.load_state_dict(third.state_dict())
    assert {state["exp_avg"].device.type for state in last.state.values()} == {"xla"}
    steps(last_network, last, "xla", 2)

    assert_same([p.detach().cpu() for p in last_network.parameters()], [p.detach() for p in one.parameters()])


def test_groups_have_their_own_settings_and_may_come_later() -> None:
    def run(device: str) -> tuple[list[torch.Tensor], list[int]]:
        torch.manual_seed(0)
        first, second = (nn.Parameter(torch.randn(3).to(device)) for _ in range(2))
        optimizer = SGD([{"params": [first], "lr": 0.3}], lr=0.1, momentum=0.9)
        compiles = []
        for step in range(6):
            if step == 2:
                optimizer.add_param_group({"params": [second], "nesterov": True})
            optimizer.zero_grad(set_to_none=step % 2 == 0)
            ((first * second).sum() ** 2).backward()
            with counted() as cost:
                optimizer.step()
                xr.sync()
            compiles.append(cost.compiles)
        return [first.detach().cpu(), second.detach().cpu()], compiles

    assert_same(run("xla")[0], run("cpu")[0])


def test_hooks_see_each_step_and_gradients_accumulate() -> None:
    def run(device: str) -> tuple[list[torch.Tensor], list[str], list[int]]:
        torch.manual_seed(0)
        network = small().to(device)
        batches = [torch.randn(3, 4).to(device) for _ in range(2)]
        optimizer = AdamW(network.parameters(), lr=0.1)
        seen: list[str] = []
        optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
        optimizer.register_step_post_hook(lambda *_: seen.append("after"))
        compiles = []
        for _ in range(4):
            with counted() as cost:
                optimizer.zero_grad()
                for batch in batches:
                    (network(batch).square().mean() / len(batches)).backward()
                optimizer.step()
                xr.sync()
            compiles.append(cost.compiles)
        return [p.detach().cpu() for p in network.parameters()], seen, compiles

    got, seen, compiles = run("xla")
    assert_same(got, run("cpu")[0])
    assert seen == ["before", "after"] * 4
    assert compiles[1:] == [0, 0, 0]
