"""The rules by which torch_xla 2.9 compiles, runs, reads and uploads, one little program each.

What is planted are the rules themselves (observed on torch_xla 2.9); a rule holds in the default mode and in strict
mode unless its test says otherwise.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

import xlaprof.runtime as xr
from tests.zoo.programs import Counts, as_if_new, counts
from xlaprof.runtime.dispatch.fallback import counter
from xlaprof.runtime.dispatch.strict_handlers import lowered

D = torch.device("xla")
aten = torch.ops.aten


@pytest.fixture(params=[pytest.param(False, id="default"), pytest.param(True, id="strict", marks=pytest.mark.slow)])
def mode(request: pytest.FixtureRequest) -> Iterator[bool]:
    with as_if_new(strict=request.param):
        yield request.param


@pytest.fixture
def strict() -> Iterator[None]:
    with as_if_new(strict=True):
        yield


def compiles() -> int:
    return counts().counted["CompileTime"]


def runs() -> int:
    return counts().counted["ExecuteTime"]


def reads() -> int:
    return counts().counted["TransferFromDeviceTime"]


def uploads() -> int:
    return counts().counted["TransferToDeviceTime"]


def _compiled_for(values: list[object], program: Callable[[torch.Tensor, object], torch.Tensor]) -> int:
    """How many graphs ``program(x, value)`` makes of all ``values``."""
    x = torch.rand(3, 4).to(D)
    for value in values:
        result = program(x, value)
        xr.sync()
        del result
    return compiles()


# -- numbers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "graphs"),
    [
        ([0.5, 0.25, 3.0], 1),  # an input
        ([0.5, 0.0], 2),
        ([0.5, 1.0, 0.25], 2),
        ([0.5, -1.0, 0.25], 2),
        ([0.0, -0.0], 2),
        ([1, 1.0, True], 1),
    ],
)
def test_numbers_are_inputs_but_0_1_and_minus_1(mode: bool, values: list[object], graphs: int) -> None:
    assert _compiled_for(values, lambda x, v: x * v) == graphs  # type: ignore[operator]


def test_equal_numbers_share_one_input(mode: bool) -> None:
    a, b = torch.rand(2).to(D), torch.rand(2).to(D)
    for first, second in ((0.5, 0.5), (0.7, 0.7), (0.5, 0.6), (0.1, 0.2)):
        result = a * first + b * second
        xr.sync()
        del result
    assert compiles() == 2


def test_a_number_on_the_device_is_not_sent_again(mode: bool) -> None:
    x = torch.rand(2).to(D)
    for value in (0.5, 0.25, 0.5, 0.25):
        y = x * value + 7.5
        xr.sync()
        del y
    assert uploads() == 1 + (3 if mode else 2)  # alone 0.5, 0.25 and 7.5; packed (0.5, 7.5) and (0.25, 7.5)


@pytest.mark.parametrize(
    ("make", "sent"),
    [
        (lambda: torch.tensor(1.0).to(D), 0),
        (lambda: torch.full((3,), -1.0, device=D), 0),
        (lambda: torch.empty(3, device=D).fill_(0), 0),
        (lambda: torch.tensor([1.0]).to(D), 1),
        (lambda: torch.tensor(2.5).to(D), 1),
    ],
)
def test_created_on_the_device_follows_the_same_rule(mode: bool, make: Callable[[], torch.Tensor], sent: int) -> None:
    made = make() * 1
    xr.sync()
    assert uploads() == sent
    del made


@pytest.mark.parametrize(
    ("program", "values"),
    [
        (lambda x, v: x**v, [2.5, 3.5]),
        (lambda x, v: x.norm(v), [2.5, 3.5]),
        (lambda x, v: x[v] * 2.5, [0, 1]),
        (lambda x, v: x.roll(v, 1), [1, 2]),
        (lambda x, v: torch.arange(v, v + 3, device=D) + x[0, 0], [2, 3]),
        (lambda x, v: x.topk(v).values, [2, 3]),
        (lambda x, v: x.tril(v), [1, 2]),
    ],
    ids=["pow", "norm", "select", "roll", "arange", "topk", "tril"],
)
def test_baked_into_the_graph(
    mode: bool, program: Callable[[torch.Tensor, object], torch.Tensor], values: list[object]
) -> None:
    assert _compiled_for(values, program) == 2


@pytest.mark.parametrize(
    "program",
    [
        lambda x, v: nn.functional.dropout(x, v),
        lambda x, v: x.clamp(-v, v),
        lambda x, v: x.masked_fill(x > 0.5, v),
        lambda x, v: torch.where(x > 0.5, x, v),
        lambda x, v: torch.empty_like(x).normal_(v, 2.5),
        lambda x, v: nn.functional.smooth_l1_loss(x, x + 2.5, beta=v),
        lambda x, v: nn.functional.leaky_relu(x, v),
        lambda x, v: nn.functional.elu(x, v),
        lambda x, v: nn.functional.hardtanh(x, -v, v),
        lambda x, v: nn.functional.softplus(x, v),
        lambda x, v: x.nan_to_num(v),
    ],
    ids=[
        "dropout",
        "clamp",
        "masked_fill",
        "where",
        "normal_",
        "smooth_l1",
        "leaky_relu",
        "elu",
        "hardtanh",
        "softplus",
        "nan_to_num",
    ],
)
def test_not_baked(mode: bool, program: Callable[[torch.Tensor, object], torch.Tensor]) -> None:
    assert _compiled_for([0.25, 0.75], program) == 1


@pytest.mark.parametrize(
    "program",
    [
        lambda x, v: nn.functional.threshold(x, v, 2.5),
        lambda x, v: nn.functional.threshold_(x.clone(), 2.5, v),
        lambda x, v: torch.ops.aten.threshold_backward(x, x, v),
        lambda x, v: torch.ops.aten.hardtanh_backward(x, x, -v, v),
        lambda x, v: torch.pow(v, x),
        lambda x, v: x.std(correction=v),
    ],
    ids=["threshold", "threshold_", "threshold_backward", "hardtanh_backward", "pow", "std"],
)
def test_baked_in_strict_mode(mode: bool, program: Callable[[torch.Tensor, object], torch.Tensor]) -> None:
    assert _compiled_for([0.25, 0.75, 0.625], program) == (3 if mode else 1)


# -- reads --------------------------------------------------------------------------------------------


def test_scalar_reads_keep_the_tensor_pending(mode: bool) -> None:
    loss = (torch.rand(8).to(D) * 2.5).sum()
    loss.item()
    float(loss)
    xr.sync()
    assert (runs(), reads()) == (3, 2)
    assert counts().fallbacks == {"aten::_local_scalar_dense": 2}


def test_full_reads_materialise(mode: bool) -> None:
    x = torch.rand(8).to(D) * 2.5
    x.cpu()
    x.tolist()
    str(x)
    xr.sync()
    assert (runs(), reads()) == (1, 3)
    assert counts().fallbacks == {}


def test_every_read_is_a_transfer_also_of_what_is_computed(mode: bool) -> None:
    x = torch.rand(8).to(D) * 2.5
    xr.sync()
    for _ in range(4):
        x.cpu()
    assert (runs(), reads()) == (1, 4)


def test_saving_several_tensors_is_one_transfer(mode: bool) -> None:
    import xlaprof.torch_xla.core.xla_model as xm

    model = nn.Linear(3, 4).to(D)
    xm.save(model.state_dict(), io.BytesIO())
    assert reads() == 1


# -- graphs -------------------------------------------------------------------------------------------


def test_two_tensors_that_share_a_value_after_a_copy_are_one_input_in_strict_mode_alone(mode: bool) -> None:
    """After ``load_state_dict`` the teacher shows the student's arrays: in PyTorch/XLA one more graph in warm-up."""
    student, teacher = nn.Linear(4, 4).to(D), nn.Linear(4, 4).to(D)
    teacher.load_state_dict(student.state_dict())
    opt = torch.optim.SGD(student.parameters(), lr=0.5)
    x = torch.rand(2, 4).to(D)
    xr.sync()
    for _ in range(4):
        opt.zero_grad()
        with torch.no_grad():
            target = teacher(x)
        (student(x) - target - 1).pow(2).mean().backward()
        opt.step()
        del target
        xr.sync()
    assert (compiles(), runs()) == (2 if mode else 1, 4)
    assert not torch.equal(teacher.weight.cpu(), student.weight.cpu()), "the teacher's were not written to"


@pytest.mark.parametrize(
    "copied",
    [
        lambda x: x.clone() * 2.5,
        lambda x: x.to(torch.float32, copy=True) * 2.5,
        lambda x: (x * 2.5).clone(),
        lambda x: x.clone().mul_(2.5),
        lambda x: torch.empty_like(x).copy_(x.clone()) * 2.5,
    ],
)
def test_a_copy_is_no_operation(mode: bool, copied: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.rand(4).to(D)
    results = []
    for program in (lambda x: x * 2.5, copied):
        results.append(program(x))
        xr.sync()
    assert compiles() == 1
    assert torch.equal(*results)


def test_a_copy_that_is_kept_beside_its_original_is_an_array_of_its_own(mode: bool) -> None:
    x = torch.arange(3.0).to(D)
    copy, made = x.clone(), x * 2.5
    again = made.clone()
    xr.sync()
    assert len({id(t._storage.array) for t in (x, copy, made, again)}) == 4  # type: ignore[attr-defined]
    for t in (x, made):
        t.add_(1)
    xr.sync()
    assert [t.tolist() for t in (x, copy, made, again)] == [[1, 2, 3], [0, 1, 2], [1, 3.5, 6], [0, 2.5, 5]]


def test_a_loop_that_reads_its_residual_compiles_as_often_as_there(mode: bool) -> None:
    """Conjugate gradients: the first direction is a copy of the first residual, which is the right side."""
    n = 23
    a = torch.randn(n, n)
    a, b = (a @ a.T + n * torch.eye(n)).to(D), torch.randn(n).to(D)
    xr.sync()
    x, r = torch.zeros_like(b), b.clone()
    p, before = r.clone(), (r * r).sum()
    seen = []
    for _ in range(4):
        ap = a @ p
        alpha = before.item() / (p * ap).sum().item()
        x, r = x.add(p, alpha=alpha), r.add(ap, alpha=-alpha)
        after = (r * r).sum()
        seen.append(after.item())
        p, before = r.add(p, alpha=after.item() / before.item()), after
        del ap, alpha, after
        xr.sync()
    assert compiles() == 6
    assert seen[-1] < seen[0]


def test_the_same_subgraph_elsewhere_is_the_same_graph(mode: bool) -> None:
    x, y = torch.rand(3).to(D), torch.rand(3).to(D)
    a = x * 2.5 + y
    a.cpu()
    unrelated = y.exp()
    b = y * 2.5 + x  # another walk, with its inputs entered in another order
    b.cpu()
    assert (compiles(), counts().counted["CachedCompile"]) == (1, 1)
    del unrelated


def test_what_is_held_is_part_of_the_identity_and_what_is_not_is_not_run(mode: bool) -> None:
    x = torch.rand(3).to(D)
    for keep in (True, False):
        a = x.exp()
        b = a + 2.5
        if not keep:
            del a
        xr.sync()
        del b
    assert compiles() == 2
    c = x.sin()
    del c
    xr.sync()
    assert (compiles(), runs(), counts().counted["MarkStep"]) == (2, 2, 3)


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.Adam(p, lr=0.5),
        lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.75),
    ],
    ids=["adam", "momentum"],
)
def test_optimizers_with_a_state_compile_once_or_twice_in_strict_mode_and_new_ones_hit_the_cache(
    mode: bool, optimizer: Callable[[object], torch.optim.Optimizer]
) -> None:
    model = nn.Linear(3, 2).to(D)
    x = torch.rand(4, 3).to(D)
    xr.sync()
    for _epoch in range(2):
        opt = optimizer(model.parameters())
        for _ in range(3):
            opt.zero_grad()
            model(x).sum().backward()
            opt.step()
            xr.sync()
    assert compiles() == (2 if mode else 1)


def test_a_gradient_that_is_none_and_one_that_is_added_to(mode: bool) -> None:
    model = nn.Linear(3, 2).to(D)
    x = torch.rand(4, 3).to(D)
    xr.sync()
    for _ in range(3):
        model(x).sum().backward()
        xr.sync()
    assert (compiles(), runs()) == (2, 3)


def test_step_is_a_barrier_before_and_after(mode: bool) -> None:
    xr.sync()
    x = torch.rand(3).to(D)
    for _ in range(12):
        with xr.step():
            x = x * 0.5
    assert counts().counted["MarkStep"] == 25
    assert runs() == 12


# -- strict mode alone --------------------------------------------------------------------------------


def test_masks_go_by_the_cpu_in_strict_mode(mode: bool) -> None:
    x, mask = torch.arange(6.0).to(D), torch.tensor([True, False] * 3).to(D)
    kept = x[mask] * 2
    again = x[mask]
    assert kept.tolist() == [0.0, 4.0, 8.0]
    assert again.tolist() == [0.0, 2.0, 4.0]
    nonzero = {"aten::nonzero": 2}
    assert counts().fallbacks == (nonzero if mode else {})
    # strict: the mask down and its positions up, twice; else one number down. Then the two values.
    assert reads() == (2 if mode else 1) + 2


def test_cpu_fallbacks_leave_their_inputs_pending(strict: None) -> None:
    x = torch.arange(6.0).to(D) * 2.5
    x.nonzero()
    x.nonzero()
    xr.sync()
    assert runs() == 3
    assert counts().fallbacks == {"aten::nonzero": 2}


def test_what_pytorch_xla_does_not_lower_runs_on_the_cpu(strict: None) -> None:
    values = torch.tensor([3, 1, 1, 2]).to(D)
    ordered = values.sort().values
    assert values.bincount().tolist() == [0, 2, 1, 1]
    assert torch.searchsorted(ordered, values).tolist() == [3, 0, 0, 2]
    assert values.unique().tolist() == [1, 2, 3]
    assert counts().fallbacks == {"aten::bincount": 1, "aten::searchsorted.Tensor": 1, "aten::_unique2": 1}


def test_indices_read_the_size_as_a_number(mode: bool) -> None:
    x = torch.rand(7, 3).to(D)
    at = torch.tensor([0, -1, 5]).to(D)
    picked = x[at]
    xr.sync()
    assert torch.equal(picked.cpu(), x.cpu()[[0, -1, 5]])
    assert uploads() == (3 if mode else 2)  # and in strict mode 7


def test_clipping_asks_twice_whether_the_norm_is_finite(strict: None) -> None:
    model = nn.Linear(3, 2).to(D)
    x = torch.rand(4, 3).to(D)
    xr.sync()
    for _ in range(3):
        model.zero_grad()
        model(x).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5, error_if_nonfinite=True)
        xr.sync()
    assert (compiles(), runs(), reads()) == (3, 9, 6)
    model.weight.grad.fill_(float("inf"))  # type: ignore[union-attr]
    with pytest.raises(RuntimeError, match="is non-finite, so it cannot be clipped"):
        nn.utils.clip_grad_norm_(model.parameters(), 0.5, error_if_nonfinite=True)


def test_one_seed_a_step_is_sent_in_strict_mode(strict: None) -> None:
    for _ in range(3):
        noise = torch.rand(2, device=D) + torch.randn(2, device=D)
        noise.sum().item()  # the same seed
        xr.sync()
        del noise
    assert uploads() == 3


@pytest.mark.parametrize(
    ("op", "name"),
    [
        (aten.bincount.default, "aten::bincount"),
        (aten.searchsorted.Tensor, "aten::searchsorted.Tensor"),
        (aten.sinc.default, "aten::sinc.out"),  # structured: it comes down to the form that writes
        (aten.median.default, "aten::median"),
    ],
)
def test_fallbacks_bear_the_overloads_name(op: torch._ops.OpOverload, name: str) -> None:
    assert not lowered(op)
    assert counter(op) == name


def test_what_pytorch_xla_computes_is_known() -> None:
    for op in (aten.add_.Tensor, aten.addmm.default, aten.silu.default, aten.rand.default, aten.view.default):
        assert lowered(op)


def test_modes_forget_each_other() -> None:
    with as_if_new(strict=True):
        torch.ones(3, device=D).nonzero()
        assert counts().fallbacks == {"aten::nonzero": 1}
    with as_if_new():
        assert torch.ones(3, device=D).nonzero().tolist() == [[0], [1], [2]]
        assert counts() == Counts({**counts().counted, "CompileTime": 2, "ExecuteTime": 2}, {})


@pytest.mark.slow
def test_a_graph_is_run_to_see_what_falls_back(mode: bool) -> None:
    @torch.library.custom_op("parity::unknown", mutates_args=(), device_types="cpu")
    def unknown(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    unknown.register_fake(torch.empty_like)
    fast = torch.compile(lambda x: unknown(x * 2) * 2, backend="openxla")
    x = torch.ones(7).to(D)
    seen = []
    for _ in range(2):
        before = runs()
        assert fast(x).tolist() == [4.0] * 7
        seen.append(runs() - before)
    assert x.tolist() == [1.0] * 7
    assert compiles() == (2 if mode else 1)
    assert seen == [5 if mode else 2, 2]
