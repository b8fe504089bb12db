"""Rolling-window backtest of a neural factor model for asset returns.

Every quarter the model is refitted on the past three years and then trades the next quarter.
"""
import gc
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

ASSETS, FEATURES, QUARTER, HISTORY, QUARTERS = 60, 12, 63, 756, 10


class Panel(NamedTuple):
    features: np.ndarray   # (days, assets, features)
    returns: np.ndarray    # (days, assets), return of the following day


def market(seed):
    """Predictive relation that drifts slowly and is nonlinear in two features."""
    rng = np.random.default_rng(seed)
    days = HISTORY + QUARTER * QUARTERS
    feats = np.empty((days, ASSETS, FEATURES), np.float32)
    state = rng.normal(size=(ASSETS, FEATURES))
    for d in range(days):
        state = 0.95 * state + 0.31 * rng.normal(size=state.shape)
        feats[d] = state
    w = rng.normal(size=FEATURES) + np.cumsum(0.02 * rng.normal(size=(days, FEATURES)), axis=0)
    signal = np.einsum("daf,df->da", feats, w) + 2.0 * np.tanh(feats[..., 0] * feats[..., 1])
    rets = 0.002 * signal + 0.015 * rng.standard_t(5, size=signal.shape)
    return Panel(feats, rets.astype(np.float32))


def init_net(key, sizes=(FEATURES, 32, 32, 1)):
    keys = jax.random.split(key, len(sizes))
    return [
        {"w": jax.random.normal(k, (a, b)) / jnp.sqrt(a), "b": jnp.zeros(b)}
        for k, a, b in zip(keys, sizes, sizes[1:])
    ]


def forward(net, x):
    for layer in net[:-1]:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return (x @ net[-1]["w"] + net[-1]["b"])[..., 0]


def objective(net, feats, rets):
    """Negative Sharpe-like utility plus a rank-friendly regression loss."""
    score = forward(net, feats)
    weights = jnp.tanh(score - score.mean(axis=1, keepdims=True))
    pnl = (weights * rets).mean(axis=1)
    mse = jnp.mean((score * 0.01 - rets) ** 2)
    decay = sum(jnp.sum(l["w"] ** 2) for l in net)
    return -pnl.mean() / (pnl.std() + 1e-4) + 100.0 * mse + 1e-4 * decay


tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-3))


@jax.jit
def fit(net, feats, rets, key):
    def step(carry, k):
        net, opt = carry
        days = jax.random.randint(k, (64,), 0, feats.shape[0])
        loss, grads = jax.value_and_grad(objective)(net, feats[days], rets[days])
        upd, opt = tx.update(grads, opt)
        return (optax.apply_updates(net, upd), opt), loss

    (net, _), losses = jax.lax.scan(step, (net, tx.init(net)), jax.random.split(key, 250))
    return net, losses[-50:].mean()


@jax.jit
def trade(net, feats, rets, cost=0.0005):
    score = forward(net, feats)
    weights = jnp.tanh(score - score.mean(axis=1, keepdims=True))
    weights = weights / jnp.abs(weights).sum(axis=1, keepdims=True)
    turnover = jnp.abs(jnp.diff(weights, axis=0, prepend=0.0)).sum(axis=1)
    return (weights * rets).sum(axis=1) - cost * turnover, turnover.mean()


def sharpe(pnl):
    return float(np.mean(pnl) / np.std(pnl) * np.sqrt(252))


def release_memory():
    """Windows accumulate device buffers otherwise."""
    gc.collect()
    jax.clear_caches()


def main():
    panel = market(0)
    key = jax.random.key(0)
    net = init_net(key)
    book = []
    for q in range(QUARTERS):
        start = time.perf_counter()
        key, kf = jax.random.split(key)
        lo, now = q * QUARTER, HISTORY + q * QUARTER
        past = jax.device_put((panel.features[lo:now], panel.returns[lo:now]))
        net, loss = fit(net, *past, kf)
        pnl, turnover = trade(net, panel.features[now : now + QUARTER], panel.returns[now : now + QUARTER])
        book.append(np.asarray(pnl))
        print(
            f"quarter {q:2d}: loss {float(loss):.3f}  sharpe {sharpe(book[-1]):5.2f}  "
            f"turnover {float(turnover):.2f}  {time.perf_counter() - start:.1f} s"
        )
        release_memory()
    total = np.concatenate(book)
    curve = np.cumsum(total)
    print(f"whole period: sharpe {sharpe(total):.2f}  drawdown {np.max(np.maximum.accumulate(curve) - curve):.3f}")


if __name__ == "__main__":
    main()
