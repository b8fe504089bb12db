"""Loops as one operation: ``scan`` and ``scan_layers`` against the loop written out on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from runtime.counting import counted
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.utils._pytree import tree_leaves, tree_map

import xlaprof.torch_xla

import torch_xla  # isort: skip
from torch_xla.experimental.scan import scan, tree_flatten_none, value_and_grad_partitioned  # isort: skip
from torch_xla.experimental.scan_layers import scan_layers  # isort: skip

assert xlaprof.torch_xla
XLAC = torch_xla._XLAC


def there(value: Any) -> Any:
    """A pytree of tensors as leaves on the device."""
    return tree_map(lambda t: t.detach().to("xla").requires_grad_(t.requires_grad), value)


def written_out(fn: Callable[..., Any], init: Any, xs: Any) -> Any:
    """The loop that ``scan`` stands for, where ``y`` is a list of tensors."""
    carry, ys = init, []
    for i in range(len(tree_leaves(xs)[0])):
        carry, y = fn(carry, tree_map(lambda t, i=i: t[i], xs))
        ys.append(y)
    return carry, [torch.stack(row) for row in zip(*ys, strict=True)]


def test_values_and_gradients_are_the_loops_and_compute_at_once() -> None:
    torch.manual_seed(0)
    weight = torch.randn(3, 3, requires_grad=True)
    init = {"state": torch.randn(2, 3, requires_grad=True), "passes": torch.tensor(0)}
    xs = (torch.randn(4, 2, 3, requires_grad=True), torch.randn(4, 3))

    def outcome(weight: torch.Tensor, init: Any, xs: Any, loop: Callable[..., Any], **how: Any) -> list[torch.Tensor]:
        def fn(carry: Any, x: Any) -> Any:
            factors = torch.tensor([1.0, 2.0, 3.0], device=weight.device)
            state = torch.sin(carry["state"] @ weight + x[0] * factors + x[1])
            return {"state": state, "passes": carry["passes"] + 1}, [state * x[0], carry["passes"].clone()]

        carry, ys = loop(fn, init, xs, **how)
        (carry["state"].sum() * 2 + (ys[0] ** 2).sum()).backward()
        return [carry["state"], carry["passes"], *ys, weight.grad, init["state"].grad, xs[0].grad]

    expected = outcome(weight, init, xs, written_out)
    ways: list[dict[str, Any]] = [{}, {"partition_fn": min_cut_rematerialization_partition}]
    for how in ways:
        given = there(weight), there(init), there(xs)
        torch_xla.sync()
        with counted() as counts:
            found = outcome(*given, loop=scan, **how)
            torch_xla.sync()
        assert counts.runs == 1
        assert [t.dtype for t in found] == [t.dtype for t in expected]
        for got, want in zip(found, expected, strict=True):
            torch.testing.assert_close(got.detach().cpu(), want.detach())


def test_the_program_does_not_grow_with_the_passes() -> None:
    def program(passes: int) -> str:
        x = torch.ones(passes, 2, device="xla", requires_grad=True)
        carry, _ = scan(lambda c, x: (torch.sin(c * x), None), torch.ones(2, device="xla"), x)
        text: str = XLAC._get_xla_tensors_hlo(list(torch.autograd.grad(carry.sum(), [x])))
        return text

    assert program(3).count("while(") == 2
    assert len(program(3).splitlines()) == len(program(300).splitlines())


def test_each_pass_draws_other_numbers_and_a_seed_draws_them_again() -> None:
    def drawn() -> torch.Tensor:
        torch_xla.manual_seed(5)
        init, xs = torch.zeros(2, device="xla"), torch.zeros(3, 2, device="xla")
        ys: torch.Tensor = scan(lambda c, x: (c, x + torch.rand(2, device="xla")), init, xs)[1]
        return ys.cpu()

    first = drawn()
    assert first.unique().numel() == 6
    assert first.equal(drawn())


def test_what_is_written_in_place_stays_inside() -> None:
    def sums(total: torch.Tensor, x: torch.Tensor) -> Any:
        total += x
        x.zero_()
        return total, total

    init, xs = torch.zeros(1, device="xla"), torch.tensor([[1.0], [2.0], [3.0]], device="xla")
    carry, ys = scan(sums, init, xs)
    assert (carry.tolist(), ys.flatten().tolist()) == ([6.0], [1.0, 3.0, 6.0])
    assert (init.tolist(), xs.flatten().tolist()) == ([0.0], [1.0, 2.0, 3.0])


def test_what_cannot_be_traced_is_called_for_each_pass() -> None:
    seen = torch.zeros(1, device="xla")

    def reads(carry: torch.Tensor, x: torch.Tensor) -> Any:
        return (carry + x, None) if x.sum().item() > 1 else (carry, None)

    def writes(carry: torch.Tensor, x: torch.Tensor) -> Any:
        seen.add_(x)
        return carry + seen, seen

    init, xs = torch.zeros(1, device="xla"), torch.tensor([[1.0], [2.0], [3.0]], device="xla")
    assert scan(reads, init, xs)[0].tolist() == [5.0]
    carry, ys = scan(writes, init, xs)
    assert (carry.tolist(), ys.flatten().tolist(), seen.tolist()) == ([10.0], [1.0, 3.0, 6.0], [6.0])


def test_a_pure_function_is_traced_once() -> None:
    calls = 0

    def fn(carry: torch.Tensor, x: torch.Tensor) -> Any:
        nonlocal calls
        calls += 1
        return carry * x, carry

    def step() -> int:
        xs = torch.full((3, 2), 2.0, device="xla", requires_grad=True)
        carry, _ = scan(fn, torch.ones(2, device="xla"), xs, is_fn_pure=True)
        carry.sum().backward()
        torch_xla.sync()
        assert xs.grad is not None
        assert xs.grad.tolist() == [[4.0, 4.0]] * 3
        return calls

    first = step()
    with counted() as counts:
        assert step() == first
    assert (counts.runs, counts.compiles) == (1, 0)


def test_mistakes_are_reported() -> None:
    init, xs = torch.zeros(2, device="xla"), torch.zeros(3, 2, device="xla")

    def same(carry: Any, x: Any) -> Any:
        return carry, x

    wrong: list[tuple[Any, Any, Any, str]] = [
        (1000, init, xs, "has to be callable, got 1000"),
        (same, init, (xs, xs[:2]), r"of one length in their first dimension, got \[3, 2\]"),
        (same, init, (), "there is no tensor in it"),
        (same, init, [xs, 3], "got 3 in xs"),
        (same, init, init.sum(), "unsqueeze it"),
        (same, {"n": 1}, xs, "got 1 in init"),
        (lambda c, x: (c.sum(), x), init, xs, r"it has to stay \[\(\(2,\), torch.float32\)\], got \[\(\(\)"),
        (lambda c, x: c, init, xs, r"a pair \(carry, y\), got a tensor"),
        (lambda c, x: (c, 7), init, xs, "tensors or None, got 7"),
    ]
    for fn, start, along, words in wrong:
        with pytest.raises(ValueError, match=words):
            scan(fn, start, along)


class Block(torch.nn.Module):
    """Takes two tensors and returns two."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("scale", torch.rand(4))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.linear(x).sin() * self.scale, self.linear(y) + x


def test_layers_are_a_loop_with_gradients_of_their_own() -> None:
    torch.manual_seed(0)
    layers = [Block() for _ in range(3)]
    moved = [deepcopy(layer).to("xla") for layer in layers]
    moved[1].linear.bias.requires_grad_(False)
    x = torch.randn(2, 4), torch.randn(2, 4)
    expected = x
    for layer in layers:
        expected = layer(*expected)
    (expected[0].sum() + expected[1].sum()).backward()
    found = scan_layers(iter(moved), there(x), is_layer_pure=True)
    assert "while(" in XLAC._get_xla_tensors_hlo(list(found))
    (found[0].sum() + found[1].sum()).backward()
    torch.testing.assert_close([t.cpu() for t in found], list(expected))
    assert moved[1].linear.bias.grad is None
    for layer, other in zip(layers, moved, strict=True):
        assert other.linear.weight.grad is not None
        torch.testing.assert_close(other.linear.weight.grad.cpu(), layer.linear.weight.grad)


def test_layers_that_write_to_their_buffers_do() -> None:
    layers: list[Any] = [torch.nn.BatchNorm1d(3).to("xla") for _ in range(2)]
    scan_layers(layers, torch.tensor([[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]], device="xla"))
    assert [int(layer.num_batches_tracked) for layer in layers] == [1, 1]
    torch.testing.assert_close(layers[0].running_mean.cpu(), torch.tensor([0.2, 0.3, 0.4]))


def test_layers_that_return_something_else_than_they_take_are_called() -> None:
    layers = [torch.nn.Linear(3, 3).to("xla") for _ in range(2)]
    with torch.autocast("xla", dtype=torch.bfloat16):
        assert scan_layers(layers, torch.ones(3, device="xla")).dtype is torch.bfloat16


def test_no_second_gradients_and_none_in_inference() -> None:
    x = torch.ones(2, device="xla", requires_grad=True)
    xs = torch.ones(3, 2, device="xla")
    with torch.inference_mode():
        assert scan(lambda c, x: (c + x, c), x, xs)[0].tolist() == [4.0, 4.0]
    carry, _ = scan(lambda c, x: (c * c + x, c), x, xs)
    with pytest.raises(RuntimeError, match="scan has no second gradients: leave out create_graph=True"):
        torch.autograd.grad(carry.sum(), [x], create_graph=True)


def test_layers_have_to_be_alike() -> None:
    x = torch.zeros(4, device="xla")
    assert scan_layers([], x) is x
    first = torch.nn.Linear(4, 4).to("xla")
    with pytest.raises(ValueError, match="layer 1 has mismatched keys"):
        scan_layers([first, torch.nn.Sequential(deepcopy(first))], x)
    with pytest.raises(
        ValueError, match=r"Shape mismatch for 'weight' in layer 1: the first has \[4, 4\], this \[5, 4\]"
    ):
        scan_layers([first, torch.nn.Linear(4, 5).to("xla")], x)


def test_the_two_passes_of_a_step() -> None:
    torch.manual_seed(0)
    names = {"init": {"a": (2, 3), "b": (2, 3)}, "x": {"w": (3, 3), "offset": (2, 3)}}
    host: Any = {key: {n: torch.randn(*size) for n, size in of.items()} for key, of in names.items()}

    def step(carry: Any, x: Any) -> Any:
        a = torch.sin(carry["a"] @ x["w"] + x["offset"])
        b = torch.cos(carry["b"] @ x["w"] + x["offset"])
        return {"a": a, "b": b}, (torch.sigmoid(a + b), None)

    mine, yours = (tree_map(lambda t, d=d: t.to(d).requires_grad_(), host) for d in ("xla", "cpu"))
    xs = tree_map(lambda t: t.detach()[None].requires_grad_(), mine["x"])
    forward, backward = value_and_grad_partitioned(step, mine["init"], xs)
    carry, (y, kept) = forward(mine["init"], mine["x"])
    expected, (expected_y, _) = step(yours["init"], yours["x"])
    assert not carry["a"].requires_grad
    for got, want in [(carry["a"], expected["a"]), (carry["b"], expected["b"]), (y[0], expected_y)]:
        torch.testing.assert_close(got.cpu(), want.detach())
    assert y[1] is None
    torch.autograd.backward([expected["a"], expected["b"], expected_y], [torch.ones(2, 3)] * 3)
    ones = torch.ones(2, 3, device="xla")
    found = backward({"a": ones, "b": ones}, ((ones, None), kept))
    for got, want in zip(tree_leaves(found), tree_leaves([yours["init"], yours["x"]]), strict=True):
        torch.testing.assert_close(got.cpu(), want.grad)


def test_a_step_without_two_passes() -> None:
    xs = torch.ones(3, 2, device="xla")
    with pytest.raises(RuntimeError, match="no leaf of init or xs has requires_grad=True"):
        value_and_grad_partitioned(lambda carry, x: (carry + x, x), xs[0], xs)
    with pytest.raises(RuntimeError, match="fn cannot be traced"):
        value_and_grad_partitioned(lambda carry, x: (carry * x.sum().item(), x), xs[0], xs.requires_grad_())


def test_leaves_that_are_none_are_left_out_and_put_back() -> None:
    flat, unflatten = tree_flatten_none(((1, 2), (None, 3), None))
    assert flat == [1, 2, 3]
    assert unflatten([4, 5, 6]) == ((4, 5), (None, 6), None)
