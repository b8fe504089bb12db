"""Every sampler follows its distribution, on the device, and refuses parameters in PyTorch's words."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributions as d
from scipy import stats
from torch import nn
from torch.nn import functional

import xlaprof.runtime as xr

from .counting import counted

N = 20_000
#: of a test that a right sampler fails: the seed is fixed, so it passes always or never
RARE = 1e-4


def new(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(N, dtype=dtype, device="xla")


def full(value: float, dtype: torch.dtype) -> torch.Tensor:
    return torch.full((N,), value, dtype=dtype, device="xla")


CONTINUOUS: list[tuple[Callable[[torch.dtype], torch.Tensor], Any]] = [
    (lambda t: torch.rand(N, dtype=t, device="xla"), stats.uniform()),
    (lambda t: torch.randn(N, dtype=t, device="xla"), stats.norm()),
    (lambda t: torch.rand_like(new(t)), stats.uniform()),
    (lambda t: torch.randn_like(new(t)), stats.norm()),
    (lambda t: new(t).normal_(2, 3), stats.norm(2, 3)),
    (lambda t: new(t).uniform_(-1, 3), stats.uniform(-1, 4)),
    (lambda t: new(t).exponential_(2.0), stats.expon(scale=0.5)),
    (lambda t: new(t).cauchy_(1, 2), stats.cauchy(1, 2)),
    (lambda t: new(t).log_normal_(0.2, 0.5), stats.lognorm(0.5, scale=math.exp(0.2))),
    (lambda t: torch.normal(full(1.0, t), full(2.0, t)), stats.norm(1, 2)),
    (lambda t: torch.normal(full(1.0, t), 2.0), stats.norm(1, 2)),
    (lambda t: torch.normal(1.0, full(2.0, t)), stats.norm(1, 2)),
    (lambda t: torch.normal(1.0, 2.0, (N,), dtype=t, device="xla"), stats.norm(1, 2)),
    (lambda t: nn.init.trunc_normal_(new(t), 0, 1, -1, 2), stats.truncnorm(-1, 2)),
]

WEIGHTS = [1.0, 2.0, 0.0, 5.0]
_weighted = stats.rv_discrete(values=([0, 1, 2, 3], [1 / 8, 2 / 8, 0, 5 / 8]))

#: those that draw until they may keep it: loops, which take XLA seconds to compile
SLOW_CONTINUOUS: list[tuple[Callable[[torch.dtype], torch.Tensor], Any]] = [
    (lambda t: torch._standard_gamma(full(0.3, t)), stats.gamma(0.3)),
    (lambda t: torch._standard_gamma(full(2.5, t)), stats.gamma(2.5)),
]

DISCRETE: list[tuple[Callable[[], torch.Tensor], Any]] = [
    (lambda: full(0.3, torch.float32).bernoulli(), stats.bernoulli(0.3)),
    (lambda: new(torch.bool).bernoulli_(0.3), stats.bernoulli(0.3)),
    (lambda: new(torch.int64).bernoulli_(full(0.3, torch.float32)), stats.bernoulli(0.3)),
    (lambda: new(torch.int32).geometric_(0.3), stats.geom(0.3)),
    (lambda: new(torch.float16).random_(10), stats.randint(0, 10)),
    (lambda: new(torch.uint8).random_(3, 10), stats.randint(3, 10)),
    (lambda: torch.randint(3, 10, (N,), device="xla"), stats.randint(3, 10)),
    (lambda: torch.randint_like(new(torch.int16), 3, 10), stats.randint(3, 10)),
    (lambda: torch.multinomial(torch.tensor(WEIGHTS, device="xla"), N, replacement=True), _weighted),
    (lambda: torch.multinomial(torch.tensor([WEIGHTS] * N, device="xla"), 1).view(-1), _weighted),
]

SLOW_DISCRETE: list[tuple[Callable[[], torch.Tensor], Any]] = [
    (lambda: torch.poisson(full(4.0, torch.float32)), stats.poisson(4.0)),
    (lambda: torch.poisson(full(50.0, torch.float32)), stats.poisson(50.0)),
    (lambda: torch.binomial(full(9.0, torch.float32), full(0.3, torch.float32)), stats.binom(9, 0.3)),
    (lambda: torch.binomial(full(100.0, torch.float32), full(0.7, torch.float32)), stats.binom(100, 0.7)),
]


def values(*drawn: torch.Tensor) -> list[np.ndarray[Any, Any]]:
    xr.sync()
    return [t.double().cpu().numpy() for t in drawn]


def on_the_device(counts: dict[str, int]) -> bool:
    # torch.normal reads whether all of its standard deviations are positive
    here = {"aten::_local_scalar_dense"}
    return not [name for name in counts if name.startswith("aten::") and counts[name] and name not in here]


@pytest.mark.parametrize(
    ("samplers", "dtype"),
    [
        (CONTINUOUS, torch.float32),
        pytest.param(CONTINUOUS, torch.float64, marks=pytest.mark.slow),
        pytest.param(SLOW_CONTINUOUS, torch.float32, marks=pytest.mark.slow),
        pytest.param(SLOW_CONTINUOUS, torch.float64, marks=pytest.mark.slow),
    ],
)
def test_continuous_distributions(samplers: list[tuple[Any, Any]], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    with counted() as counts:
        drawn = values(*[draw(dtype) for draw, _ in samplers])
    assert on_the_device(counts)
    for x, (_, law) in zip(drawn, samplers, strict=True):
        assert stats.kstest(x, law.cdf).pvalue > RARE


@pytest.mark.parametrize("samplers", [DISCRETE, pytest.param(SLOW_DISCRETE, marks=pytest.mark.slow)])
def test_discrete_distributions(samplers: list[tuple[Any, Any]]) -> None:
    torch.manual_seed(0)
    with counted() as counts:
        drawn = values(*[draw() for draw, _ in samplers])
    assert on_the_device(counts)
    numbers = np.arange(200)
    for x, (_, law) in zip(drawn, samplers, strict=True):
        expected = law.pmf(numbers) * N
        seen = np.bincount(x.astype(int), minlength=200)
        often = expected > 5
        assert seen[expected == 0].sum() == 0
        rest = np.append(expected[often], N - expected[often].sum())
        if rest[-1] < 1:  # nothing is rare
            often_seen, rest = seen[often], rest[:-1] * seen[often].sum() / rest[:-1].sum()
        else:
            often_seen = np.append(seen[often], N - seen[often].sum())
        assert stats.chisquare(often_seen, rest).pvalue > RARE


def test_integers_of_the_whole_range() -> None:
    torch.manual_seed(0)
    lowest = -(1 << 63)
    anywhere, half, byte = values(
        new(torch.int64).random_(lowest, None),
        new(torch.int64).random_(),
        new(torch.uint8).random_(),
    )
    assert abs((anywhere < 0).mean() - 0.5) < 0.02
    assert anywhere.min() < 0.99 * lowest
    assert half.min() >= 0
    assert set(byte) == set(range(256))


def test_draws_in_a_row_are_independent_whatever_their_shapes() -> None:
    torch.manual_seed(0)
    a, b, c = values(new().normal_(), new().normal_(), torch.randn(2 * N, device="xla")[:N])
    for x, y in ((a, b), (a, c), (b, c), (a[1:], a[:-1])):
        assert abs(np.corrcoef(x, y)[0, 1]) < 5 / math.sqrt(N)


@pytest.mark.parametrize(
    ("drop", "whole"),
    [
        (functional.dropout, 1),
        (functional.dropout1d, 2),
        (functional.dropout2d, 2),
        (functional.dropout3d, 2),
    ],
)
def test_dropout_drops_elements_or_channels(drop: Callable[..., torch.Tensor], whole: int) -> None:
    torch.manual_seed(0)
    dims = {functional.dropout1d: 1, functional.dropout2d: 2, functional.dropout3d: 3}.get(drop, 0)
    x = torch.ones(50, 40, *[3] * dims, device="xla")
    kept = drop(x, 0.25).cpu() * 0.75
    assert set(kept.unique().tolist()) == {0.0, 1.0}
    assert abs(kept.mean().item() - 0.75) < 0.05
    if whole == 2:
        flat = kept.flatten(2)
        assert (flat == flat[..., :1]).all()


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    torch.manual_seed(0)
    (x,) = values(functional.alpha_dropout(torch.randn(N, device="xla"), 0.3, training=True))
    assert abs(x.mean()) < 0.05
    assert abs(x.var() - 1) < 0.05


def test_initializers_fill_weights_on_the_device() -> None:
    torch.manual_seed(0)
    with counted() as counts:
        weight = nn.init.kaiming_uniform_(torch.empty(200, 100, device="xla"), a=math.sqrt(5))
        glorot = nn.init.xavier_normal_(torch.empty(200, 100, device="xla"))
        square = nn.init.orthogonal_(torch.empty(6, 6, device="xla"))
        sparse = nn.init.sparse_(torch.empty(10, 4, device="xla"), 0.3)
        xr.sync()
    assert on_the_device(counts)
    assert weight.abs().max().item() <= 0.1
    assert abs(weight.std().item() - 0.1 / math.sqrt(3)) < 0.002
    assert abs(glorot.std().item() - math.sqrt(2 / 300)) < 0.002
    torch.testing.assert_close((square @ square.t()).cpu(), torch.eye(6), rtol=0, atol=1e-5)
    assert (sparse == 0).sum(0).tolist() == [3] * 4


REFUSED: list[Callable[[str], Any]] = [
    lambda where: torch.zeros(3, device=where).normal_(0, -2.5),
    lambda where: torch.zeros(3, device=where).uniform_(2, 1),
    lambda where: torch.zeros(3, device=where).uniform_(float("-inf"), 0),
    lambda where: torch.zeros(3, device=where).exponential_(0),
    lambda where: torch.zeros(3, device=where).geometric_(1.5),
    lambda where: torch.zeros(3, device=where).cauchy_(0, -1),
    lambda where: torch.zeros(3, device=where).log_normal_(0, -1),
    lambda where: torch.zeros(3, device=where).bernoulli_(1.5),
    lambda where: torch.zeros(3, dtype=torch.uint8, device=where).random_(0, 300),
    lambda where: torch.zeros(3, device=where).random_(5, 5),
    lambda where: torch.zeros(3, dtype=torch.int64, device=where).exponential_(),
    lambda where: torch.zeros(3, dtype=torch.int64, device=where).uniform_(),
    lambda where: torch.randint(5, 5, (3,), device=where),
    lambda where: torch.randint(0, 300, (3,), dtype=torch.uint8, device=where),
    lambda where: torch.multinomial(torch.ones(3, device=where), 0),
    lambda where: torch.multinomial(torch.ones(3, device=where), 5),
    lambda where: torch.multinomial(torch.ones(3, 3, 3, device=where), 2),
    lambda where: torch.normal(torch.zeros(3, device=where), -1.5),
    lambda where: torch.rand(3, dtype=torch.int64, device=where),
]


@pytest.mark.parametrize("call", REFUSED)
def test_what_no_distribution_has_is_refused_in_pytorchs_words(call: Callable[[str], Any]) -> None:
    with pytest.raises(RuntimeError) as on_host:
        call("cpu")
    with pytest.raises(type(on_host.value)) as on_device:
        call("xla")
    assert str(on_device.value).splitlines()[0] == str(on_host.value).splitlines()[0]


def test_parameters_that_change_are_checked_too() -> None:
    # The graph is the same: nothing is inferred anew.
    x = torch.zeros(3, device="xla")
    for rate in (0.5, 2.5):
        xr.sync()
        x.exponential_(rate)
    xr.sync()
    with pytest.raises(RuntimeError, match=r"exponential_ expects lambda > 0.0, but found lambda=-1.5"):
        x.exponential_(-1.5)
    assert (x > 0).all()


def t(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, device="xla")


COVARIANCE = [[2.0, 0.5], [0.5, 1.0]]
LAWS: list[Callable[[], d.Distribution]] = [
    lambda: d.Bernoulli(logits=t(0.3, 0.7)),
    lambda: d.Beta(t(0.5, 2.0), t(1.5, 3.0)),
    lambda: d.Binomial(10, t(0.3, 0.7)),
    lambda: d.Chi2(t(3.0)),
    lambda: d.ContinuousBernoulli(t(0.3)),
    lambda: d.Dirichlet(t(0.5, 1.0, 2.0)),
    lambda: d.Exponential(t(2.0)),
    lambda: d.Gamma(t(0.3, 3.0), t(2.0, 1.0)),
    lambda: d.Geometric(t(0.3)),
    lambda: d.Gumbel(t(0.0), t(1.0)),
    lambda: d.HalfNormal(t(1.0)),
    lambda: d.InverseGamma(t(5.0), t(2.0)),
    lambda: d.Kumaraswamy(t(2.0), t(3.0)),
    lambda: d.Laplace(t(0.0), t(1.0)),
    lambda: d.LogNormal(t(0.0), t(0.5)),
    lambda: d.MultivariateNormal(t(0.0, 1.0), torch.tensor(COVARIANCE, device="xla")),
    lambda: d.Multinomial(7, t(0.2, 0.3, 0.5)),
    lambda: d.NegativeBinomial(t(5.0), t(0.3)),
    lambda: d.Normal(t(0.0, 1.0), t(1.0, 2.0)),
    lambda: d.OneHotCategorical(t(0.2, 0.8)),
    lambda: d.Poisson(t(4.0)),
    lambda: d.StudentT(t(6.0)),
    lambda: d.Uniform(t(-1.0), t(3.0)),
    lambda: d.Weibull(t(1.0), t(2.0)),
    lambda: d.MixtureSameFamily(d.Categorical(t(0.3, 0.7)), d.Normal(t(0.0, 5.0), t(1.0, 1.0))),
]


@pytest.mark.slow
@pytest.mark.one_in(6)
@pytest.mark.parametrize("make", LAWS)
def test_distributions_have_their_moments_and_densities(make: Callable[[], d.Distribution]) -> None:
    count = 3000
    law = make()
    torch.manual_seed(0)
    drawn = law.sample(torch.Size([count]))
    torch.manual_seed(0)
    assert torch.equal(law.sample(torch.Size([count])), drawn)
    spread = (law.variance.cpu() / count).sqrt()
    assert ((drawn.mean(0).cpu() - law.mean.cpu()).abs() <= 5 * spread).all()
    assert torch.isfinite(law.log_prob(drawn)).all()


@pytest.mark.slow
def test_draws_are_differentiable_in_their_parameters() -> None:
    torch.manual_seed(0)
    p = t(0.5, 1.0, 2.0).requires_grad_()
    shape = 1 + p * p
    for law in (d.Normal(p, shape), d.Gamma(shape, 2 * shape), d.Laplace(p, shape), d.Weibull(shape, shape)):
        n = 4000
        (gradient,) = torch.autograd.grad(law.rsample(torch.Size([n])).mean(0).sum(), p, retain_graph=True)
        (expected,) = torch.autograd.grad(law.mean.sum(), p, retain_graph=True)
        torch.testing.assert_close(gradient.cpu(), expected.cpu(), rtol=0.1, atol=0.1)
