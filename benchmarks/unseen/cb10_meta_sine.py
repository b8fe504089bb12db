"""First-order meta learning on few-shot regression tasks, adapted again at test time."""
import time
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax

cfg = SimpleNamespace(width=48, inner_lr=0.02, inner_steps=5, shots=10, tasks=16,
                      meta_lr=1e-3, iterations=300, eval_every=150, eval_tasks=6, eval_steps=20)


class Waves:
    """Tasks: sums of a sine and a triangle wave with random phase."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def task(self):
        a, p, m = self.rng.uniform(0.3, 2), self.rng.uniform(0, np.pi), self.rng.uniform()
        return lambda x: a * (m * np.sin(x + p) + (1 - m) * (2 / np.pi) * np.arcsin(np.sin(2 * x + p)))

    def sample(self, f, n):
        x = self.rng.uniform(-4, 4, (n, 1)).astype(np.float32)
        return x, f(x).astype(np.float32)

    def batch(self, tasks, shots):
        out = []
        for _ in range(tasks):
            f = self.task()
            out.append((*self.sample(f, shots), *self.sample(f, shots)))
        return tuple(map(np.stack, zip(*out)))


def init(seed, dims):
    rng = np.random.default_rng(seed)
    layers = [dict(w=rng.normal(0, a**-0.5, (a, b)), b=np.zeros(b)) for a, b in zip(dims[:-1], dims[1:])]
    return jax.device_put(jax.tree.map(np.float32, layers))


def net(params, x):
    for p in params[:-1]:
        x = jnp.tanh(x @ p["w"] + p["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


@jax.jit
def mse(params, x, y):
    return jnp.mean((net(params, x) - y) ** 2)


def sgd(params, grads, lr):
    return jax.tree.map(lambda p, g: p - lr * g, params, grads)


def adapt(params, x, y, steps):
    def body(p, _):
        loss, g = jax.value_and_grad(mse)(p, x, y)
        return sgd(p, g, cfg.inner_lr), loss

    return jax.lax.scan(body, params, None, length=steps)


tx = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(cfg.meta_lr))


def task_gradient(params, xs, ys, xq, yq):
    fast, _ = adapt(params, xs, ys, cfg.inner_steps)
    return jax.value_and_grad(mse)(fast, xq, yq)


@partial(jax.jit, donate_argnums=(0, 1))
def meta_step(params, opt_state, batch):
    losses, grads = jax.vmap(task_gradient, in_axes=(None, 0, 0, 0, 0))(params, *batch)
    grads = jax.tree.map(lambda g: g.mean(0), grads)
    updates, opt_state = tx.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, losses.mean()


def meta_test(params, seed):
    """Error on new tasks before and after adaptation, and the curve of the inner loss."""
    waves, before, after, curves = Waves(seed), [], [], []
    for _ in range(cfg.eval_tasks):
        f = waves.task()
        xs, ys = waves.sample(f, cfg.shots)
        xq, yq = waves.sample(f, 200)
        before.append(mse(params, xq, yq))
        fast, curve = adapt(params, xs, ys, cfg.eval_steps)
        after.append(mse(fast, xq, yq))
        curves.append(curve)
    before, after, curves = jax.device_get((before, after, curves))
    return np.mean(before), np.mean(after), np.mean(curves, 0)


def main():
    params = init(0, [1, cfg.width, cfg.width, 1])
    opt_state = jax.jit(tx.init)(params)
    waves = Waves(0)
    best, best_params, t0 = np.inf, None, time.time()
    for it in range(1, cfg.iterations + 1):
        params, opt_state, loss = meta_step(params, opt_state, waves.batch(cfg.tasks, cfg.shots))
        if it % cfg.eval_every == 0:
            before, after, curve = meta_test(params, seed=it)
            if after < best:
                best, best_params = after, jax.device_get(params)
            print(f"it {it} meta loss {float(loss):.3f} test {before:.3f} -> {after:.3f} "
                  f"(inner {curve[0]:.3f} .. {curve[-1]:.3f}) {time.time() - t0:.1f}s")
    print(f"best {best:.3f}, {sum(p['w'].size for p in best_params)} weights")


if __name__ == "__main__":
    main()
