"""Physics-informed network for a cooling rod with a curriculum on the boundary layer (equinox)."""
import logging
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

log = logging.getLogger("pinn")

DIFFUSIVITY = 0.05
STAGES = 4
STEPS_PER_STAGE = 60
POOL = 4096
REFRESH = 20


class FourierFeatures(eqx.Module):
    freqs: jax.Array

    def __init__(self, n, key):
        self.freqs = jax.random.normal(key, (n, 2)) * 1.5

    def __call__(self, xt):
        z = self.freqs @ xt
        return jnp.concatenate([jnp.sin(z), jnp.cos(z)])


class Rod(eqx.Module):
    features: FourierFeatures
    net: eqx.nn.MLP
    sharpness: jax.Array

    def __init__(self, key, sharpness):
        k1, k2 = jax.random.split(key)
        self.features = FourierFeatures(12, k1)
        self.net = eqx.nn.MLP(24, "scalar", width_size=32, depth=2, activation=jnp.tanh, key=k2)
        self.sharpness = sharpness

    def __call__(self, x, t):
        raw = self.net(self.features(jnp.stack([x, t])))
        sharpness = jax.lax.stop_gradient(self.sharpness)
        envelope = jnp.tanh(sharpness * x) * jnp.tanh(sharpness * (1.0 - x))
        return envelope * (jnp.exp(-t) * jnp.sin(jnp.pi * x) + t * raw)


def residual(model, x, t):
    u_t = jax.grad(model, argnums=1)(x, t)
    u_xx = jax.grad(jax.grad(model, argnums=0), argnums=0)(x, t)
    return u_t - DIFFUSIVITY * u_xx


def pinn_loss(model, pts):
    r = jax.vmap(lambda p: residual(model, p[0], p[1]))(pts)
    x0 = jnp.linspace(0.0, 1.0, 32)
    u0 = jax.vmap(lambda x: model(x, jnp.float32(0.0)))(x0)
    return jnp.mean(r ** 2) + 10.0 * jnp.mean((u0 - jnp.sin(jnp.pi * x0)) ** 2)


@eqx.filter_jit
def residual_norms(model, pts):
    return jax.vmap(lambda p: jnp.abs(residual(model, p[0], p[1])))(pts)


@eqx.filter_jit
def train_step(model, opt_state, pts, tx):
    loss, grads = eqx.filter_value_and_grad(pinn_loss)(model, pts)
    params = eqx.filter(model, eqx.is_inexact_array)
    updates, opt_state = tx.update(grads, opt_state, params)
    return eqx.apply_updates(model, updates), opt_state, loss


def sharpness_schedule(stage):
    """Open the boundary layer gradually: steep envelopes are hard at first."""
    return jnp.asarray(np.geomspace(2.0, 12.0, STAGES)[stage], jnp.float32)


@eqx.filter_jit
def hardest(model, pool, keep_share=0.75):
    norms = residual_norms(model, pool)
    at = jnp.nonzero(norms > keep_share * norms.mean(), size=512, fill_value=0)[0]
    return pool[at]


def pick_collocation(model, rng):
    """Residual-based refinement: keep points whose residual is above the pool's mean."""
    pool = jnp.asarray(rng.uniform(size=(POOL, 2)).astype(np.float32))
    return hardest(model, pool)


def exact(x, t):
    return np.exp(-DIFFUSIVITY * np.pi ** 2 * t) * np.sin(np.pi * x)


@eqx.filter_jit
def predict(model, xs, ts):
    return jax.vmap(model)(xs, ts)


def relative_error(model):
    g = np.linspace(0.02, 0.98, 24, dtype=np.float32)
    xs, ts = (a.ravel() for a in np.meshgrid(g, g))
    pred = np.asarray(predict(model, xs, ts))
    return np.linalg.norm(pred - exact(xs, ts)) / np.linalg.norm(exact(xs, ts))


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    rng = np.random.default_rng(5)
    model = Rod(jax.random.key(5), sharpness_schedule(0))
    tx = optax.chain(optax.clip_by_global_norm(5.0), optax.adam(2e-3))
    opt_state = tx.init(eqx.filter(model, eqx.is_inexact_array))
    for stage in range(STAGES):
        t0 = time.perf_counter()
        model = eqx.tree_at(lambda m: m.sharpness, model, sharpness_schedule(stage))
        losses = []
        for step in range(STEPS_PER_STAGE):
            if step % REFRESH == 0:
                pts = pick_collocation(model, rng)
            model, opt_state, loss = train_step(model, opt_state, pts, tx)
            losses.append(loss)
        log.info("stage %d sharpness %.2f loss %.4f error %.4f (%.1fs)", stage, float(model.sharpness),
                 float(jnp.stack(losses).mean()), relative_error(model), time.perf_counter() - t0)


if __name__ == "__main__":
    main()
