"""``assume_pure``, ``fori_loop``, ``gradient_accumulation``: what is recorded of a function, and what comes of it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from runtime.counting import counted

import xlaprof.torch_xla

import torch_xla  # isort: skip
from torch_xla.experimental.assume_pure import (  # isort: skip
    _XLA_COMPUTATION_CACHE,
    PureModule,
    assume_pure,
    assume_pure_torch,
)
from torch_xla.experimental.fori_loop import fori_loop  # isort: skip
from torch_xla.experimental.gradient_accumulation import gradient_accumulation  # isort: skip
from torch_xla.experimental.scan import scan  # isort: skip

assert xlaprof.torch_xla
XLAC = torch_xla._XLAC


def test_a_pure_function_is_one_operation_with_gradients() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.LayerNorm(3), torch.nn.GELU())
    x, offset = torch.randn(2, 3, requires_grad=True), torch.randn(3, requires_grad=True)
    moved, there, beside = deepcopy(model).to("xla"), *(t.detach().to("xla").requires_grad_() for t in (x, offset))

    def outcome(parameters: Any, x: torch.Tensor, *, factor: float, more: Any) -> dict[str, Any]:
        made = torch.func.functional_call(more[0], parameters, x) * factor + more[1]
        return {"made": made, "greatest": made.argmax(), "factor": factor}

    expected = outcome(dict(model.named_parameters()), x, factor=2.5, more=(model, offset))
    expected["made"].square().sum().backward()
    calls = 0

    @assume_pure  # type: ignore[untyped-decorator]
    def pure(parameters: Any, x: torch.Tensor, *, factor: float) -> Any:
        nonlocal calls
        calls += 1
        return outcome(parameters, x, factor=factor, more=(moved, beside))

    found = pure(dict(moved.named_parameters()), there, factor=2.5)
    text = XLAC._get_xla_tensors_text([found["made"]])
    assert "xla::pure" in text
    assert "gelu" not in text
    found["made"].square().sum().backward()
    assert found["factor"] == 2.5
    for got, want in [
        (found["made"], expected["made"]),
        (found["greatest"], expected["greatest"]),
        (there.grad, x.grad),
        (beside.grad, offset.grad),
        *zip((p.grad for p in moved.parameters()), (p.grad for p in model.parameters()), strict=True),
    ]:
        torch.testing.assert_close(got.detach().cpu(), want.detach())
    torch_xla.sync()
    known = calls
    pure(dict(moved.named_parameters()), there, factor=2.5)
    assert calls == known
    assert not pure(dict(moved.named_parameters()), there.detach(), factor=0.0)["made"].sub(beside).any()
    assert calls > known


def test_pure_functions_in_one_another_and_their_random_numbers() -> None:
    @assume_pure  # type: ignore[untyped-decorator]
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(2, device=x.device)

    ones = torch.ones(2, device="xla")
    outer = assume_pure(lambda x: (inner(x) * 2, inner(ones)))
    drawn = [value.tolist() for _ in range(2) for value in outer(torch.zeros(2, device="xla"))]
    assert len({number for values in drawn for number in values}) == 8
    assert all(1 <= number < 2 for values in drawn[1::2] for number in values)


def test_what_is_not_pure_is_called_each_time() -> None:
    x = torch.ones(2, device="xla")

    @assume_pure  # type: ignore[untyped-decorator]
    def writes(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)

    @assume_pure  # type: ignore[untyped-decorator]
    def reads(x: torch.Tensor) -> float:
        return float(x.sum())

    for _ in range(2):
        assert writes(x) is x
    assert reads(x) == 8.0
    assert assume_pure(lambda x, names: x + len(names))(x, {"a"}).tolist() == [5.0, 5.0]


def test_a_loop_of_so_many_passes_is_one_program_for_any_number() -> None:
    def passes(upper: int) -> tuple[list[float], bool]:
        bounds = (torch.tensor(1).to("xla"), torch.tensor(upper).to("xla"))
        left, power, drawn = fori_loop(
            *bounds,
            lambda x, drawn: (x * 2, drawn + torch.rand(2, device="xla")),
            torch.ones(2, device="xla"),
            torch.zeros(2, device="xla"),
        )
        torch_xla.sync()
        return [int(left), *power.tolist()], 0 < drawn.tolist()[0] < upper - 1

    assert passes(6) == ([0, 32.0, 32.0], True)
    with counted() as counts:
        assert passes(4) == ([0, 8.0, 8.0], True)
    assert (counts.compiles, counts.runs) == (0, 1)
    assert fori_loop(3, 1, lambda x: x + 1, torch.ones(1, device="xla"))[1].tolist() == [1.0]


def test_a_loop_whose_gradient_is_asked_for_is_written_out() -> None:
    x = torch.full((2,), 3.0, device="xla", requires_grad=True)
    _, power = fori_loop(0, 3, lambda value: value * x, torch.ones(2, device="xla"))
    power.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [27.0, 27.0]


def test_a_loop_says_what_it_wants() -> None:
    x = torch.ones(2, device="xla")
    with pytest.raises(ValueError, match=r"upper has to be one whole number, got 2\.5"):
        fori_loop(0, 2.5, lambda x: x, x)
    with pytest.raises(ValueError, match=r"has to stay \[\(\(2,\), torch.float32\)\], got \[\(\(\), "):
        fori_loop(0, 2, torch.sum, x)
    with pytest.raises(ValueError, match="wants tensors to begin with"):
        fori_loop(0, 2, torch.sum)


def test_a_scan_in_a_scan() -> None:
    def row(total: torch.Tensor, xs: torch.Tensor) -> Any:
        return scan(lambda total, x: (total + x, total * x), total, xs)

    last, made = scan(row, torch.zeros((), device="xla"), torch.tensor([[1.0, 2.0], [3.0, 4.0]], device="xla"))
    assert (last.item(), made.tolist()) == (10.0, [[0.0, 2.0], [9.0, 24.0]])


def test_gradients_of_several_batches_are_one_step() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    moved = deepcopy(model).to("xla")
    x, y = torch.randn(4, 5, 3), torch.randn(4, 5, 2)
    loss = torch.nn.functional.mse_loss(model(x), y)
    for _ in range(2):  # gradients add up
        torch.nn.functional.mse_loss(model(x), y).backward()
    seen = torch.zeros((), device="xla")

    def train_step(x: torch.Tensor, y: torch.Tensor, seen: torch.Tensor) -> Any:
        seen += len(x)
        return torch.nn.functional.mse_loss(moved(x), y), seen

    there = x.to("xla"), y.to("xla")
    gradient_accumulation(train_step, there, moved, seen)
    torch_xla.sync()
    with counted() as counts:
        total, count = gradient_accumulation(train_step, there, moved, seen)
        torch_xla.sync()
    assert counts.runs == 1
    assert (count.item(), seen.item(), total.requires_grad) == (20.0, 0.0, False)
    torch.testing.assert_close(total.cpu(), loss.detach())
    for got, want in zip(moved.parameters(), model.parameters(), strict=True):
        assert got.grad is not None
        torch.testing.assert_close(got.grad.cpu(), want.grad)
    alone = gradient_accumulation(lambda x, y: torch.nn.functional.mse_loss(moved(x), y), there, moved)
    torch.testing.assert_close(alone.cpu(), loss.detach())


def test_batches_have_to_be_batches() -> None:
    model, x = torch.nn.Linear(1, 1).to("xla"), torch.ones(2, 1, device="xla")
    wrong: list[tuple[Any, str]] = [
        ([], "at least one tensor"),
        ([x, 3], "number 1 is 3"),
        ([x[:0]], "number 0 is empty"),
        ([x, x[:1]], r"got \[2, 1\]"),
    ]
    for tensors, words in wrong:
        with pytest.raises(ValueError, match=words):
            gradient_accumulation(lambda *batch: model(batch[0]).sum(), tensors, model)
    with pytest.raises(ValueError, match="given 0 carried tensors and has to return as many, got 1"):
        gradient_accumulation(lambda x: (model(x).sum(), x), [x], model)


def test_a_pure_module_is_one_operation_in_either_mode() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5), torch.nn.LayerNorm(3))
    x = torch.randn(2, 3)
    expected = deepcopy(model).eval()(x)
    pure = PureModule(model.to("xla"))
    there = x.to("xla")
    text = XLAC._get_xla_tensors_text([pure(there)])
    assert "xla::pure" in text
    assert "addmm" not in text
    assert not torch.equal(pure(there), pure(there))
    pure.eval()
    found = pure(there)
    torch.testing.assert_close(found.detach().cpu(), expected.detach())
    found.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_seed_decides_the_random_numbers_of_a_call() -> None:
    noisy = assume_pure(lambda x: x + torch.rand_like(x), add_rng_seed_argument=True)
    x = torch.zeros(4, device="xla")
    first, other, again = (noisy(x, rng_seed=seed).tolist() for seed in (0, 1, 0))
    assert first == again != other
    with pytest.raises(TypeError, match="rng_seed"):
        noisy(x)


def test_functions_of_one_name_share_their_traces() -> None:
    calls = 0

    def made() -> Any:
        def doubled(x: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            calls += 1
            return x * 2

        return assume_pure_torch(doubled, use_cache=True)

    _XLA_COMPUTATION_CACHE.clear()
    x = torch.ones(2, device="xla")
    assert made()(x).tolist() == [2.0, 2.0]
    known = calls
    assert made()(x).tolist() == [2.0, 2.0]
    assert calls == known
    _XLA_COMPUTATION_CACHE.clear()
    made()(x)
    assert calls > known
