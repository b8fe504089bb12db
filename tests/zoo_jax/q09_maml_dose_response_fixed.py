"""Model-agnostic meta-learning of dose-response curves: a new compound should be fitted from ten
measurements with a few gradient steps (plain jax, optax for the outer loop)."""
import functools
import logging
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

logger = logging.getLogger("maml")
SHOTS, QUERY, TASKS = 10, 15, 6
INNER_LR, INNER_STEPS = 0.05, 2


class CompoundSampler:
    """Hill curves with compound-specific potency, slope and plateau."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def task(self):
        r = self.rng
        ec50, hill, top = r.uniform(-2, 2), r.uniform(0.6, 2.5), r.uniform(0.5, 1.5)
        dose = r.uniform(-4, 4, (SHOTS + QUERY, 1))
        y = top / (1 + np.exp(-hill * (dose - ec50) * 2.3)) + 0.03 * r.standard_normal(dose.shape)
        return dose.astype(np.float32), y.astype(np.float32)

    def batch(self, n):
        dose, y = zip(*(self.task() for _ in range(n)))
        dose, y = np.stack(dose), np.stack(y)
        return (dose[:, :SHOTS], y[:, :SHOTS]), (dose[:, SHOTS:], y[:, SHOTS:])


def init(key, sizes=(1, 32, 32, 1)):
    keys = jax.random.split(key, len(sizes) - 1)
    return {f"layer{i}": {"w": jax.random.normal(k, (m, n)) / jnp.sqrt(m), "b": jnp.zeros(n)}
            for i, (k, m, n) in enumerate(zip(keys, sizes[:-1], sizes[1:]))}


def predict(params, x):
    last = len(params) - 1
    for i in range(last + 1):
        layer = params[f"layer{i}"]
        x = x @ layer["w"] + layer["b"]
        if i < last:
            x = jnp.tanh(x)
    return x


def mse(params, x, y):
    return jnp.mean((predict(params, x) - y) ** 2)


def sgd(params, grads, lr):
    return jax.tree.map(lambda p, g: p - lr * g, params, grads)


def inner_loop(params, x, y, steps):
    for _ in range(steps):
        params = sgd(params, jax.grad(mse)(params, x, y), INNER_LR)
    return params


def meta_loss(params, support, query):
    def one(xs, ys, xq, yq):
        return mse(inner_loop(params, xs, ys, INNER_STEPS), xq, yq)

    return jax.vmap(one)(*support, *query).mean()


outer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(2e-3))


@jax.jit
def meta_step(params, opt_state, support, query):
    loss, grads = jax.value_and_grad(meta_loss)(params, support, query)
    updates, opt_state = outer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


@functools.partial(jax.jit, static_argnames="steps")
def adapted_errors(params, support, query, steps):
    """The error before the first step, and after each."""
    def one(xs, ys, xq, yq):
        def turn(p, _):
            p = sgd(p, jax.grad(mse)(p, xs, ys), INNER_LR)
            return p, mse(p, xq, yq)

        return jnp.concatenate([mse(params, xq, yq)[None], jax.lax.scan(turn, params, None, length=steps)[1]])

    return jax.vmap(one)(*support, *query).mean(0)


def learning_curve(params, sampler, max_steps=5):
    support, query = sampler.batch(64)
    return np.asarray(adapted_errors(params, support, query, max_steps)).tolist()


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    train, test = CompoundSampler(0), CompoundSampler(1)
    params = init(jax.random.key(0))
    opt_state = outer.init(params)
    t0 = time.perf_counter()
    for iteration in range(800):
        params, opt_state, loss = meta_step(params, opt_state, *train.batch(TASKS))
        if iteration % 250 == 0:
            logger.info("iteration %4d meta-loss %.4f (%.1f s)", iteration, loss, time.perf_counter() - t0)
    t1 = time.perf_counter()
    curve = learning_curve(params, test)
    logger.info("error after n adaptation steps: %s", " ".join(f"{e:.4f}" for e in curve))
    logger.info("training %.1f s, evaluation %.1f s", t1 - t0, time.perf_counter() - t1)


if __name__ == "__main__":
    main()
