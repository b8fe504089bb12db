"""Real-NVP density estimate of detector hits, with micro batches and Polyak averaging."""
import time
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax

DIM = 8


class Coupling(nn.Module):
    flip: bool
    hidden: int = 48

    @nn.compact
    def __call__(self, x):
        a, b = jnp.split(x, 2, -1)
        if self.flip:
            a, b = b, a
        h = nn.tanh(nn.Dense(self.hidden)(a))
        h = nn.tanh(nn.Dense(self.hidden)(h))
        s, t = jnp.split(nn.Dense(DIM, kernel_init=nn.initializers.zeros)(h), 2, -1)
        s = 2 * jnp.tanh(s / 2)
        b = b * jnp.exp(s) + t
        if self.flip:
            a, b = b, a
        return jnp.concatenate([a, b], -1), s.sum(-1)


class Flow(nn.Module):
    layers: int = 3

    @nn.compact
    def __call__(self, x):
        logdet = jnp.zeros(x.shape[0])
        for i in range(self.layers):
            x, ld = Coupling(i % 2 == 1)(x)
            logdet = logdet + ld
        return -0.5 * (x**2).sum(-1) - 0.5 * DIM * jnp.log(2 * jnp.pi) + logdet


@flax.struct.dataclass
class State:
    params: Any
    opt_state: Any
    average: Any
    step: int


class HitLoader:
    """Yields lists of micro batches; each micro batch comes from another run of the detector."""

    def __init__(self, runs, micro, size, seed):
        self.rng = np.random.default_rng(seed)
        self.mix = np.random.default_rng(5).normal(size=(runs, DIM, DIM)) * 0.4 + np.eye(DIM)
        self.micro, self.size = micro, size

    def draw(self):
        z = self.rng.standard_normal((self.size, DIM))
        z[:, ::2] = np.abs(z[:, ::2]) ** 0.7 * np.sign(z[:, 1::2])
        return (z @ self.mix[self.rng.integers(len(self.mix))]).astype(np.float32)

    def __iter__(self):
        while True:
            yield [self.draw() for _ in range(self.micro)]


class FlowTrainer:
    def __init__(self, model, tx, decay=0.995):
        self.model, self.tx, self.decay = model, tx, decay
        self.grad_fn = jax.jit(jax.value_and_grad(self.nll))
        self.eval_fn = jax.jit(self.nll)

    def nll(self, params, x):
        return -self.model.apply(params, x).mean()

    def create(self, key):
        params = jax.jit(self.model.init)(key, jnp.zeros((2, DIM)))
        return State(params, jax.jit(self.tx.init)(params), params, 0)

    def apply(self, state, grads):
        updates, opt_state = self.tx.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        average = optax.incremental_update(params, state.average, 1 - self.decay)
        return State(params, opt_state, average, state.step + 1)

    def train_on(self, state, micros):
        total, losses = None, []
        for x in micros:
            loss, g = self.grad_fn(state.params, x)
            losses.append(loss)
            total = g if total is None else jax.tree.map(jnp.add, total, g)
        grads = jax.tree.map(lambda t: t / len(micros), total)
        return self.apply(state, grads), losses


def main(steps=40, micro=4, size=64):
    tx = optax.chain(optax.clip_by_global_norm(5.0), optax.adamw(optax.linear_schedule(2e-3, 2e-4, steps)))
    trainer = FlowTrainer(Flow(), tx)
    state = trainer.create(jax.random.key(0))
    loader = iter(HitLoader(3, micro, size, 0))
    held_out = HitLoader(3, 1, 1024, 1).draw()
    t0, recent = time.time(), []
    while state.step < steps:
        state, losses = trainer.train_on(state, next(loader))
        recent += losses
        if state.step % 10 == 0:
            raw, avg = trainer.eval_fn(state.params, held_out), trainer.eval_fn(state.average, held_out)
            print(f"step {state.step} nll {np.mean(jax.device_get(recent)):.3f} "
                  f"held out {float(raw):.3f} averaged {float(avg):.3f} {time.time() - t0:.1f}s")
            recent = []


if __name__ == "__main__":
    main()
