"""``torch.autocast("xla")``: the policy operator by operator, the weight cache, the backward pass, loss scaling."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import xlaprof.runtime as xr
from xlaprof.runtime.pytorch import autocast
from xlaprof.runtime.pytorch.autocast import FLOAT32, FLOAT32_ONCE_LOWERED, LOWER_PRECISION, PROMOTE, overload

from .counting import counted


class Values:
    """Reproducible arguments for one operator; floating-point ones are of ``dtype``."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.generator = torch.Generator().manual_seed(7)

    def t(self, *shape: int) -> torch.Tensor:
        """Standard normal numbers."""
        return torch.randn(shape, generator=self.generator).to(self.dtype)

    def p(self, *shape: int) -> torch.Tensor:
        """Numbers inside (0, 1)."""
        return (torch.rand(shape, generator=self.generator) * 0.8 + 0.1).to(self.dtype)

    def spd(self, n: int) -> torch.Tensor:
        """A symmetric positive definite matrix, well conditioned."""
        a = torch.randn((n, n), generator=self.generator)
        return (a @ a.T / n + 2 * torch.eye(n)).to(self.dtype)

    def lower(self, n: int) -> torch.Tensor:
        return self.spd(n).float().tril().to(self.dtype)


_LABELS = torch.tensor([0, 2, 1])
_SIGNS = torch.tensor([1.0, -1.0, 1.0])
_PIVOTS = torch.tensor([1, 2, 3], dtype=torch.int32)

Example = Callable[[Values], tuple[Any, ...]]

#: arguments for each operator of the policy
EXAMPLES: dict[str, Example] = {
    "conv1d": lambda v: (v.t(2, 3, 8), v.t(4, 3, 3), v.t(4)),
    "conv1d.padding": lambda v: (v.t(2, 3, 8), v.t(4, 3, 3), v.t(4), [1], "same"),
    "conv2d": lambda v: (v.t(2, 3, 8, 8), v.t(4, 3, 3, 3), v.t(4)),
    "conv2d.padding": lambda v: (v.t(2, 3, 8, 8), v.t(4, 3, 3, 3), v.t(4), [1, 1], "same"),
    "conv3d": lambda v: (v.t(1, 2, 4, 4, 4), v.t(3, 2, 2, 2, 2), v.t(3)),
    "conv3d.padding": lambda v: (v.t(1, 2, 4, 4, 4), v.t(3, 2, 3, 3, 3), v.t(3), [1, 1, 1], "same"),
    "conv_tbc": lambda v: (v.t(5, 2, 3), v.t(3, 3, 4), v.t(4)),
    "conv_transpose1d": lambda v: (v.t(2, 3, 5), v.t(3, 4, 3), v.t(4)),
    "conv_transpose2d.input": lambda v: (v.t(2, 3, 5, 5), v.t(3, 4, 3, 3), v.t(4)),
    "conv_transpose3d.input": lambda v: (v.t(1, 2, 3, 3, 3), v.t(2, 3, 2, 2, 2), v.t(3)),
    "bmm": lambda v: (v.t(2, 3, 4), v.t(2, 4, 5)),
    "mm": lambda v: (v.t(3, 4), v.t(4, 5)),
    "baddbmm": lambda v: (v.t(2, 3, 5), v.t(2, 3, 4), v.t(2, 4, 5)),
    "addmm": lambda v: (v.t(3, 5), v.t(3, 4), v.t(4, 5)),
    "addbmm": lambda v: (v.t(3, 5), v.t(2, 3, 4), v.t(2, 4, 5)),
    "linear": lambda v: (v.t(2, 3, 4), v.t(5, 4), v.t(5)),
    "matmul": lambda v: (v.t(2, 3, 4), v.t(4)),
    "einsum": lambda v: ("bij,bkj->bik", [v.t(2, 3, 4), v.t(2, 5, 4)]),
    "prelu": lambda v: (v.t(2, 3, 4), v.t(3)),
    "relu": lambda v: (v.t(3, 4),),
    "max_pool2d": lambda v: (v.t(1, 2, 6, 6), [2, 2]),
    "scaled_dot_product_attention": lambda v: (v.t(1, 2, 4, 8), v.t(1, 2, 5, 8), v.t(1, 2, 5, 8)),
    "batch_norm": lambda v: (v.t(4, 3), v.t(3), v.t(3), v.t(3), v.p(3), False, 0.1, 1e-5, False),
    "_softmax": lambda v: (v.t(3, 4), 1, False),
    "softmax.int": lambda v: (v.t(3, 4), 1),
    "log_softmax.int": lambda v: (v.t(3, 4), 1),
    "prod": lambda v: (v.p(3, 4),),
    "prod.dim_int": lambda v: (v.p(3, 4), 1),
    "cdist": lambda v: (v.t(3, 4), v.t(2, 4)),
    "trace": lambda v: (v.t(3, 3),),
    "cholesky": lambda v: (v.spd(3),),
    "cholesky_inverse": lambda v: (v.lower(3),),
    "cholesky_solve": lambda v: (v.t(3, 2), v.lower(3)),
    "inverse": lambda v: (v.spd(3),),
    "qr": lambda v: (v.spd(3),),
    "svd": lambda v: (v.spd(3),),
    "triangular_solve": lambda v: (v.t(3, 2), v.spd(3)),
    "linalg_svd": lambda v: (v.spd(3),),
    "linalg_inv_ex": lambda v: (v.spd(3),),
    "reflection_pad1d": lambda v: (v.t(2, 3, 4), [1, 2]),
    "reflection_pad2d": lambda v: (v.t(2, 3, 4, 4), [1, 2, 2, 1]),
    "replication_pad1d": lambda v: (v.t(2, 3, 4), [1, 2]),
    "replication_pad2d": lambda v: (v.t(2, 3, 4, 4), [1, 2, 2, 1]),
    "replication_pad3d": lambda v: (v.t(1, 2, 3, 3, 3), [1, 1, 1, 1, 1, 1]),
    "binary_cross_entropy": lambda v: (v.p(3, 4), v.p(3, 4)),
    "binary_cross_entropy_with_logits": lambda v: (v.t(3, 4), v.p(3, 4)),
    "mse_loss": lambda v: (v.t(3, 4), v.t(3, 4)),
    "cosine_embedding_loss": lambda v: (v.t(3, 4), v.t(3, 4), _SIGNS),
    "nll_loss": lambda v: (v.t(3, 4), _LABELS),
    "nll_loss2d": lambda v: (v.t(3, 4, 1, 1), _LABELS.view(3, 1, 1)),
    "hinge_embedding_loss": lambda v: (v.t(3), _SIGNS),
    "smooth_l1_loss": lambda v: (v.t(3, 4), v.t(3, 4)),
    "cross_entropy_loss": lambda v: (v.t(3, 4), _LABELS),
    "l1_loss": lambda v: (v.t(3, 4), v.t(3, 4)),
    "margin_ranking_loss": lambda v: (v.t(3), v.t(3), _SIGNS),
    "soft_margin_loss": lambda v: (v.t(3), _SIGNS),
    "triplet_margin_loss": lambda v: (v.t(3, 4), v.t(3, 4), v.t(3, 4)),
    "multi_margin_loss": lambda v: (v.t(3, 4), _LABELS),
    "ctc_loss.IntList": lambda v: (v.t(6, 2, 4), torch.tensor([[1, 2], [2, 3]]), [6, 6], [2, 2]),
    "ctc_loss.Tensor": lambda v: (
        v.t(6, 2, 4), torch.tensor([[1, 2], [2, 3]]), torch.tensor([6, 6]), torch.tensor([2, 2])
    ),
    "kl_div": lambda v: (v.t(3, 4), v.p(3, 4)),
    "multilabel_margin_loss": lambda v: (v.t(3, 3), torch.tensor([[0, 2, -1], [1, -1, 0], [2, 1, 0]])),
    "multilabel_margin_loss_forward": lambda v: (v.t(3, 3), torch.tensor([[0, 2, -1], [1, -1, 0], [2, 1, 0]]), 1),
    "grid_sampler": lambda v: (v.t(1, 2, 4, 4), v.t(1, 3, 3, 2), 0, 0, False),
    "grid_sampler_2d": lambda v: (v.t(1, 2, 4, 4), v.t(1, 3, 3, 2), 0, 0, False),
    "grid_sampler_3d": lambda v: (v.t(1, 2, 4, 4, 4), v.t(1, 3, 3, 3, 3), 0, 0, False),
    "polar": lambda v: (v.p(3, 4), v.t(3, 4)),
    "quantile": lambda v: (v.t(3, 4), v.p(2)),
    "quantile.scalar": lambda v: (v.t(3, 4), 0.3),
    "nanquantile": lambda v: (v.t(3, 4), v.p(2)),
    "nanquantile.scalar": lambda v: (v.t(3, 4), 0.3),
    "stft": lambda v: (v.t(32), 8, 4, 8, v.p(8), False, True, True),
    "stft.center": lambda v: (v.t(32), 8, 4, 8, v.p(8), True, "constant", False, True, True),
    "view_as_complex": lambda v: (v.t(3, 2),),
    "lu_solve": lambda v: (v.t(3, 2), v.spd(3), _PIVOTS),
    "orgqr": lambda v: (v.t(4, 3), v.p(3)),
    "ormqr": lambda v: (v.t(4, 3), v.p(3), v.t(4, 2)),
    "pinverse": lambda v: (v.spd(3),),
    "poisson_nll_loss": lambda v: (v.t(3, 4), v.p(3, 4), True, False, 1e-8, 1),
    "huber_loss": lambda v: (v.t(3, 4), v.t(3, 4)),
    **{
        f"fft_{name}": lambda v: (v.t(4, 4),)
        for name in ("fft", "ifft", "fft2", "ifft2", "fftn", "ifftn", "rfft", "irfft", "rfft2", "irfft2", "rfftn",
                     "irfftn", "hfft", "ihfft")
    },
    "linalg_cond": lambda v: (v.spd(3),),
    "linalg_cond.p_str": lambda v: (v.spd(3), "fro"),
    "linalg_matrix_rank": lambda v: (v.spd(3), 1e-3),
    "linalg_matrix_rank.tol_tensor": lambda v: (v.spd(3), v.p()),
    "linalg_matrix_rank.atol_rtol_tensor": lambda v: (v.spd(3),),
    "linalg_matrix_rank.atol_rtol_float": lambda v: (v.spd(3),),
    "linalg_solve": lambda v: (v.spd(3), v.t(3, 2)),
    "linalg_tensorsolve": lambda v: (v.spd(4).view(2, 2, 4), v.t(2, 2)),
    "linalg_tensorinv": lambda v: (v.spd(4).view(2, 2, 4), 2),
    "linalg_householder_product": lambda v: (v.t(4, 3), v.p(3)),
    "linalg_lstsq": lambda v: (v.t(4, 3), v.t(4, 2)),
    **{
        f"linalg_{name}": lambda v: (v.spd(3),)
        for name in ("cholesky", "svdvals", "eigvals", "eigvalsh", "inv", "qr", "cholesky_ex", "eig", "eigh")
    },
    "fake_quantize_per_tensor_affine": lambda v: (v.t(3, 4), 0.1, 0, -128, 127),
    "geqrf": lambda v: (v.spd(3),),
    "_lu_with_info": lambda v: (v.spd(3),),
    "cat": lambda v: ([v.t(2, 3), v.t(2, 3).to(torch.bfloat16)], 1),
    "stack": lambda v: ([v.t(2, 3), v.t(2, 3).to(torch.bfloat16)], 1),
    "index_copy": lambda v: (v.t(3, 4), 0, torch.tensor([0, 2]), v.t(2, 4).to(torch.bfloat16)),
}  # fmt: skip


def _map(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return [_map(v, change) for v in value]
    return value


def _there(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to("xla")


def _to(dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda t: t.to(dtype) if t.is_floating_point() else t


def _tensors(result: Any) -> list[torch.Tensor]:
    return [r for r in (result if isinstance(result, (tuple, list)) else [result]) if isinstance(r, torch.Tensor)]


def test_every_operator_of_the_policy_has_an_example() -> None:
    assert set(EXAMPLES) == {*LOWER_PRECISION, *FLOAT32, *FLOAT32_ONCE_LOWERED, *PROMOTE}
    assert len(EXAMPLES) == sum(map(len, (LOWER_PRECISION, FLOAT32, FLOAT32_ONCE_LOWERED, PROMOTE)))


def _check(names: tuple[str, ...], given: torch.dtype, run_in: torch.dtype) -> None:
    """In a region of bfloat16, operators over ``given`` do what they do over ``run_in`` on the CPU."""
    results = []
    for name in names:
        args = EXAMPLES[name](Values(given))
        there = _map(args, _there)
        with torch.autocast("xla", dtype=torch.bfloat16):
            results.append(overload(name)(*there))
    xr.sync()
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if run_in is torch.bfloat16 else {"rtol": 2e-4, "atol": 2e-4}
    for name, result in zip(names, results, strict=True):
        expected = overload(name)(*_map(EXAMPLES[name](Values(given)), _to(run_in)))
        for ours, theirs in zip(_tensors(result), _tensors(expected), strict=True):
            assert ours.dtype == theirs.dtype, name
            if name in _UP_TO_SIGN:
                ours, theirs = ours.cpu().abs(), theirs.abs()
            torch.testing.assert_close(ours.cpu(), theirs, **tolerance, msg=lambda text, name=name: f"{name}: {text}")


#: a basis is what it is up to the sign of its vectors
_UP_TO_SIGN = {"qr", "svd", "linalg_svd", "linalg_qr", "linalg_eigh", "linalg_eig", "geqrf"}


def test_what_runs_in_the_lower_precision() -> None:
    _check(LOWER_PRECISION, torch.float32, torch.bfloat16)


@pytest.mark.filterwarnings("ignore:torch.(cholesky|qr|svd|linalg.matrix_rank|triangular_solve|lu_solve)")
@pytest.mark.parametrize("names", [FLOAT32, FLOAT32_ONCE_LOWERED], ids=["there", "here"])
def test_what_runs_in_float32(names: tuple[str, ...]) -> None:
    _check(names, torch.bfloat16, torch.float32)


def test_what_runs_in_the_widest_dtype_of_its_arguments() -> None:
    _check(PROMOTE, torch.float32, torch.float32)
    _check(PROMOTE, torch.bfloat16, torch.bfloat16)
    x = torch.ones(2, device="xla")
    with (
        torch.autocast("xla", dtype=torch.bfloat16),
        pytest.raises(RuntimeError, match=r"Unexpected floating ScalarType.* torch.float16"),
    ):
        torch.cat([x.bfloat16(), x.half()])


def test_all_else_runs_in_what_it_is_given() -> None:
    x = torch.ones(2, 2, device="xla")
    with torch.autocast("xla", dtype=torch.bfloat16):
        assert (x + x).dtype == torch.float32
        assert (x.bfloat16() + x).dtype == torch.float32
        assert F.gelu(x.bfloat16()).dtype == torch.bfloat16
        assert F.layer_norm(x, (2,)).dtype == torch.float32
        assert torch.mm(x.double(), x.double()).dtype == torch.float64  # never touched
        assert torch.mm(x.int(), x.int()).dtype == torch.int32
        assert torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype == torch.float32  # another device's


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_regions_nest(dtype: torch.dtype) -> None:
    x = torch.ones(2, 2, device="xla")
    assert torch.amp.autocast_mode.is_autocast_available("xla")
    assert torch.get_autocast_dtype("xla") == torch.bfloat16
    with torch.autocast("xla", dtype=dtype):
        assert torch.is_autocast_enabled("xla")
        assert torch.get_autocast_dtype("xla") == dtype
        assert (x @ x).dtype == dtype
        with torch.autocast("xla", enabled=False):
            assert not torch.is_autocast_enabled("xla")
            assert (x @ x).dtype == torch.float32
        assert (x @ x).dtype == dtype

        @torch.autocast("xla", dtype=torch.bfloat16)
        def other(x: torch.Tensor) -> torch.Tensor:
            return x @ x

        assert other(x).dtype == torch.bfloat16
        elsewhere: list[torch.dtype] = []
        thread = threading.Thread(target=lambda: elsewhere.append((x @ x).dtype))
        thread.start()
        thread.join()
        assert elsewhere == [torch.float32]  # the state is each thread's own
    assert (x @ x).dtype == torch.float32
    assert not torch.is_autocast_enabled("xla")


def test_a_weight_is_cast_once_in_a_region() -> None:
    weight = torch.ones(4, 4, device="xla", requires_grad=True)
    x = torch.ones(2, 4, device="xla")
    seen: list[int] = []

    def use() -> torch.Tensor:
        y = F.linear(F.linear(x, weight), weight)
        seen.append(id(y.grad_fn.next_functions[1][0].next_functions[0][0]))  # type: ignore[union-attr]  # its cast
        return y

    with torch.autocast("xla"):
        with torch.no_grad():
            assert F.linear(x, weight).grad_fn is None
        first = use()  # what was cast under no_grad serves nobody who wants a gradient
        with torch.autocast("xla", enabled=False):
            assert F.linear(x, weight).dtype == torch.float32
        use()
        assert seen[0] == seen[1]
        with torch.autocast("xla", cache_enabled=False):
            use()
        assert seen[2] != seen[0]
        torch.clear_autocast_cache()
        use()
        assert seen[3] != seen[0]
        assert autocast._casts
    assert not autocast._casts
    first.sum().backward()
    assert weight.grad is not None
    assert weight.grad.dtype == torch.float32
    assert weight.grad.tolist() == [[16.0] * 4] * 4


def test_nothing_outlives_its_region() -> None:
    layer = nn.Linear(4, 4).to("xla")
    gone = weakref.ref(layer.weight)
    with torch.autocast("xla"):
        y = layer(torch.ones(2, 4, device="xla"))
    del layer, y
    gc.collect()
    assert gone() is None


def test_outside_regions_the_policy_costs_nothing() -> None:
    calls: list[str] = []
    library = torch.library.Library("xlaprof_autocast_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    library.impl("twice", lambda x: calls.append("cast"), "AutocastXLA")
    torch.ops.xlaprof_autocast_test.twice(torch.ones(2, device="xla"))
    assert calls == []  # PyTorch leaves the key out: a kernel there is not even looked up


def _transformer() -> nn.Module:
    torch.manual_seed(3)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Embedding(11, 16), layer, nn.Linear(16, 11))


def _train(device: str, dtype: torch.dtype, steps: int) -> list[float]:
    model = _transformer().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = (torch.arange(24).view(3, 8) * 7 % 11).to(device)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=dtype):
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        assert (logits.dtype, loss.dtype) == (dtype, torch.float32)
        loss.backward()
        assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())
        optimizer.step()
        losses.append(loss.detach())
        if device == "xla":
            xr.sync()
    return [float(loss) for loss in losses]


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)])
def test_a_transformer_trains_as_on_the_cpu(dtype: torch.dtype) -> None:
    with counted() as counts:
        ours = _train("xla", dtype, 8)
    theirs = _train("cpu", dtype, 8)
    assert ours[-1] < 0.5 * ours[0]
    torch.testing.assert_close(ours, theirs, rtol=0.06, atol=0.06)
    assert [name for name in counts if name.startswith("aten::") and counts[name] and "_local" not in name] == []


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoints_recompute_as_they_computed(use_reentrant: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to("xla")
    dtypes: list[torch.dtype] = []
    model[0].register_forward_hook(lambda module, args, out: dtypes.append(out.dtype))
    x = torch.linspace(-1, 1, 12, device="xla").view(2, 6).requires_grad_()
    gradients = []
    for run in (model, lambda x: checkpoint(model, x, use_reentrant=use_reentrant)):
        model.zero_grad()
        with torch.autocast("xla", dtype=torch.float16):
            loss = F.mse_loss(run(x), torch.zeros(2, 3, device="xla"))
        loss.backward()
        gradients.append([p.grad for p in model.parameters()])
    assert dtypes == [torch.float16] * 3  # plain; in the checkpoint; once more, in the backward pass
    for plain, recomputed in zip(*gradients, strict=True):
        assert torch.equal(plain, recomputed)


def test_custom_functions_say_what_they_run_in() -> None:
    enabled: list[bool] = []

    class Square(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="xla", cast_inputs=torch.float32)
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            enabled.append(torch.is_autocast_enabled("xla"))
            return x @ x

        @staticmethod
        @torch.amp.custom_bwd(device_type="xla")
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            enabled.append(torch.is_autocast_enabled("xla"))
            return gradient @ x.T + x.T @ gradient

    x = torch.eye(3, device="xla").bfloat16().requires_grad_()
    with torch.autocast("xla"):
        y = Square.apply(x)
        assert y.dtype == torch.float32
        y.sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.bfloat16
    assert enabled == [False, False]


def _scaled_steps(device: str, factors: list[float]) -> tuple[list[Any], list[torch.Tensor]]:
    """The scaler's state after each step, whose loss is multiplied by its factor; and the parameters at the end."""
    parameters = [torch.ones(3, 2, device=device, dtype=d, requires_grad=True) for d in (torch.float32, torch.bfloat16)]
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**10, growth_interval=2)
    states = []
    for factor in factors:
        optimizer.zero_grad()
        loss = sum(p.float().pow(2).sum() for p in parameters) * torch.tensor(factor)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        states.append(scaler.state_dict())
    return states, [p.detach().cpu() for p in parameters]


@pytest.mark.slow
def test_the_scaler_does_as_on_the_cpu_and_nothing_falls_back() -> None:
    factors = [1.0, 0.5, float("inf"), 1.0, float("nan"), 1.0]
    with counted() as counts:
        states, parameters = _scaled_steps("xla", factors)
    expected, expected_parameters = _scaled_steps("cpu", factors)
    assert states == expected
    torch.testing.assert_close(parameters, expected_parameters, rtol=0, atol=0)
    assert [name for name in counts if name.startswith("aten::_amp") and counts[name]] == []


def test_a_scale_that_half_precision_does_not_hold() -> None:
    found = torch.zeros(1, device="xla")
    gradients = [torch.full((3,), 2.0**14, device="xla", dtype=torch.float16)]
    torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, torch.tensor(2.0**-26, device="xla"))
    assert gradients[0].tolist() == [2.0**-12] * 3  # 2 ** -26 is 0 in float16
    assert found.tolist() == [0.0]
    with pytest.raises(RuntimeError, match="inv_scale must be a 1-element tensor"):
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, torch.ones(2, device="xla"))


def test_pytorch_xlas_own_region_is_bfloat16s() -> None:
    from xlaprof.torch_xla.amp import autocast

    x = torch.ones(2, 2, device="xla")
    with autocast(x.device):
        assert (x @ x).dtype == torch.bfloat16
    with pytest.warns(UserWarning, match="lowers precision to bfloat16 only, not to torch.float16"):
        region = autocast(x.device, dtype=torch.float16)
    with region:
        assert not torch.is_autocast_enabled("xla")
        assert (x @ x).dtype == torch.float32
