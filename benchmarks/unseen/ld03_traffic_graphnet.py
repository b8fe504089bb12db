"""Traffic speed forecasting with a Chebyshev graph network (flax linen).

Loop detectors on a ring-and-spokes road network; the next 6 readings are predicted from the last 12.
Detectors drop out in groups when a roadside cabinet loses power.
"""
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training.train_state import TrainState

N_SENSORS = 400
PAST, FUTURE = 12, 6
DAYS, PER_DAY = 20, 96
BATCH = 8


def road_network(seed=3):
    rng = np.random.default_rng(seed)
    radius = np.sqrt(rng.uniform(0.05, 1.0, N_SENSORS))
    angle = rng.uniform(0, 2 * np.pi, N_SENSORS)
    xy = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    dist = np.linalg.norm(xy[:, None] - xy[None], axis=-1)
    weight = np.exp(-((dist / 0.15) ** 2))
    weight[weight < 0.05] = 0.0
    np.fill_diagonal(weight, 0.0)
    return xy, weight.astype(np.float32)


def simulate_speeds(weight, seed=4):
    rng = np.random.default_rng(seed)
    steps = DAYS * PER_DAY
    hour = (np.arange(steps) % PER_DAY) / PER_DAY * 24
    rush = np.exp(-((hour - 8) ** 2) / 3) + 0.9 * np.exp(-((hour - 17.5) ** 2) / 4)
    mixing = weight / (weight.sum(1, keepdims=True) + 1e-6)
    load, speeds = np.zeros(N_SENSORS), np.zeros((steps, N_SENSORS), np.float32)
    sensitivity = rng.uniform(0.3, 1.0, N_SENSORS)
    for t in range(steps):
        incident = (rng.random(N_SENSORS) < 0.002) * 1.5
        load = 0.6 * load + 0.3 * mixing @ load + 0.15 * rush[t] * sensitivity + incident
        speeds[t] = 1.2 - 0.8 * np.tanh(load) + 0.03 * rng.normal(size=N_SENSORS)
    return speeds, hour.astype(np.float32) / 24


def scaled_laplacian(weight):
    """2 L / lambda_max - I for the normalised Laplacian, so that Chebyshev polynomials are stable."""
    deg = weight.sum(-1)
    inv = jnp.where(deg > 0, jax.lax.rsqrt(jnp.maximum(deg, 1e-6)), 0.0)
    lap = jnp.eye(weight.shape[0]) - inv[:, None] * weight * inv[None, :]
    lam = jnp.linalg.eigvalsh(lap)[-1]
    return 2.0 * lap / lam - jnp.eye(weight.shape[0])


class ChebConv(nn.Module):
    features: int
    order: int = 3

    @nn.compact
    def __call__(self, x, weight):
        lap = scaled_laplacian(weight)
        terms = [x, jnp.einsum("nm,bmf->bnf", lap, x)]
        for _ in range(self.order - 2):
            terms.append(2 * jnp.einsum("nm,bmf->bnf", lap, terms[-1]) - terms[-2])
        return nn.Dense(self.features)(jnp.concatenate(terms, -1))


class TrafficNet(nn.Module):
    hidden: int = 32

    @nn.compact
    def __call__(self, past, alive, hour, weight):
        b = past.shape[0]
        clock = jnp.stack([jnp.sin(2 * jnp.pi * hour), jnp.cos(2 * jnp.pi * hour)], -1)
        clock = jnp.broadcast_to(clock[:, None], (b, N_SENSORS, 2))
        seen = past * alive[:, None, :]
        h = jnp.concatenate([seen.transpose(0, 2, 1), alive[..., None], clock], -1)
        h = nn.gelu(nn.Dense(self.hidden)(h))
        for _ in range(2):
            h = h + nn.gelu(ChebConv(self.hidden)(nn.LayerNorm()(h), weight))
        return seen[:, -1:, :] + nn.Dense(FUTURE)(h).transpose(0, 2, 1)


@jax.jit
def train_step(state, batch, weight):
    past, future, alive, hour = batch

    def loss_fn(params):
        pred = state.apply_fn(params, past, alive, hour, weight)
        return jnp.abs(pred - future).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


def windows(speeds, hours, rng, starts, dropout):
    for i in range(0, len(starts) - BATCH + 1, BATCH):
        s = starts[i : i + BATCH]
        past = np.stack([speeds[k : k + PAST] for k in s])
        future = np.stack([speeds[k + PAST : k + PAST + FUTURE] for k in s])
        cabinet = rng.random((BATCH, N_SENSORS // 8)) < dropout
        alive = 1.0 - np.repeat(cabinet, 8, axis=1).astype(np.float32)
        yield past, future, alive, hours[s + PAST]


def main(epochs=4):
    xy, weight = road_network()
    speeds, hours = simulate_speeds(weight)
    rng = np.random.default_rng(0)
    starts = np.arange(len(speeds) - PAST - FUTURE)
    split = int(0.85 * len(starts))
    weight = jnp.asarray(weight)

    net = TrafficNet()
    sample = next(windows(speeds, hours, rng, starts, 0.1))
    params = net.init(jax.random.key(0), sample[0], sample[2], sample[3], weight)
    schedule = optax.cosine_decay_schedule(3e-3, epochs * (split // BATCH))
    state = TrainState.create(apply_fn=net.apply, params=params, tx=optax.adam(schedule))
    predict = jax.jit(net.apply)

    begin = time.time()
    for epoch in range(epochs):
        losses = []
        for batch in windows(speeds, hours, rng, rng.permutation(starts[:split]), 0.1):
            state, loss = train_step(state, batch, weight)
            losses.append(loss)
        errs = []
        for past, future, alive, hour in windows(speeds, hours, rng, starts[split:], 0.0):
            pred = predict(state.params, past, alive, hour, weight)
            errs.append(jnp.abs(pred - future).mean())
        mae, val = float(jnp.stack(losses).mean()), float(jnp.stack(errs).mean())
        print(f"epoch {epoch}  train MAE {mae:.4f}  validation MAE {val:.4f}  ({time.time() - begin:.1f}s)")


if __name__ == "__main__":
    main()
