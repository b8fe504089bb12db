"""Flow matching between a Gaussian and ring-shaped galaxies' star positions (Equinox)."""
import argparse
import math
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax


class Velocity(eqx.Module):
    freqs: jax.Array
    layers: list
    out: eqx.nn.Linear

    def __init__(self, width, depth, key):
        *keys, last = jr.split(key, depth + 1)
        self.freqs = 2.0 ** jnp.arange(4)
        sizes = [2 + 8] + [width] * depth
        self.layers = [eqx.nn.Linear(a, b, key=k) for a, b, k in zip(sizes[:-1], sizes[1:], keys)]
        self.out = eqx.nn.Linear(width, 2, key=last)

    def __call__(self, t, x):
        phase = math.pi * jax.lax.stop_gradient(self.freqs) * t
        h = jnp.concatenate([x, jnp.sin(phase), jnp.cos(phase)])
        for layer in self.layers:
            h = jax.nn.silu(layer(h))
        return self.out(h)


def sample_stars(key, n):
    k1, k2, k3 = jr.split(key, 3)
    arm = jr.randint(k1, (n,), 0, 3)
    angle = 2.5 * jr.uniform(k2, (n,)) + arm * 2 * math.pi / 3
    radius = 0.4 + 0.5 * (angle - arm * 2 * math.pi / 3)
    xy = jnp.stack([radius * jnp.cos(angle), radius * jnp.sin(angle)], axis=-1)
    return xy + 0.06 * jr.normal(k3, (n, 2))


def matching_loss(model, key, n):
    ks, k0, kt = jr.split(key, 3)
    x1 = sample_stars(ks, n)
    x0 = jr.normal(k0, (n, 2))
    t = jr.uniform(kt, (n,))
    xt = (1 - t[:, None]) * x0 + t[:, None] * x1
    v = jax.vmap(model)(t, xt)
    return jnp.mean(jnp.sum((v - (x1 - x0)) ** 2, axis=-1))


def make_trainer(optim, batch, chunk):
    @eqx.filter_jit(donate="all")
    def run_chunk(model, average, opt_state, key):
        arrays, static = eqx.partition(model, eqx.is_inexact_array)

        def body(carry, k):
            arrays, average, opt_state = carry
            loss, grads = eqx.filter_value_and_grad(matching_loss)(eqx.combine(arrays, static), k, batch)
            updates, opt_state = optim.update(grads, opt_state, arrays)
            arrays = eqx.apply_updates(arrays, updates)
            average = jax.tree.map(lambda a, p: 0.995 * a + 0.005 * p, average, arrays)
            return (arrays, average, opt_state), loss

        carry, losses = jax.lax.scan(body, (arrays, average, opt_state), jr.split(key, chunk))
        arrays, average, opt_state = carry
        return eqx.combine(arrays, static), average, opt_state, losses

    return run_chunk


@eqx.filter_jit
def generate(model, key, n, steps, heun: bool):
    x = jr.normal(key, (n, 2))
    dt = 1.0 / steps

    def euler(x, t):
        return x + dt * jax.vmap(model, (None, 0))(t, x)

    def heun_step(x, t):
        v0 = jax.vmap(model, (None, 0))(t, x)
        v1 = jax.vmap(model, (None, 0))(t + dt, x + dt * v0)
        return x + 0.5 * dt * (v0 + v1)

    step = heun_step if heun else euler
    return jax.lax.scan(lambda x, t: (step(x, t), None), x, jnp.arange(steps) * dt)[0]


@jax.jit
def energy_distance(a, b):
    def mean_dist(p, q):
        return jnp.mean(jnp.sqrt(jnp.sum((p[:, None] - q[None]) ** 2, -1) + 1e-12))

    return 2 * mean_dist(a, b) - mean_dist(a, a) - mean_dist(b, b)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--chunks", type=int, default=24)
    ap.add_argument("--chunk-size", type=int, default=100)
    ap.add_argument("--batch", type=int, default=256)
    args = ap.parse_args()

    k_model, k_train, k_eval = jr.split(jr.key(0), 3)
    optim = optax.adam(optax.cosine_decay_schedule(3e-3, args.chunks * args.chunk_size))

    @eqx.filter_jit
    def setup(key):
        model = Velocity(48, 3, key)
        params = eqx.filter(model, eqx.is_inexact_array)
        return model, jax.tree.map(jnp.copy, params), optim.init(params)

    model, average, opt_state = setup(k_model)
    run_chunk = make_trainer(optim, args.batch, args.chunk_size)
    held_out = jax.jit(sample_stars, static_argnums=1)(k_eval, 768)

    start = time.perf_counter()
    for chunk in range(args.chunks):
        k_train, sub = jr.split(k_train)
        model, average, opt_state, losses = run_chunk(model, average, opt_state, sub)
        if chunk % 4 == 3:
            smooth = eqx.combine(average, model)
            quick = energy_distance(generate(smooth, k_eval, 768, 20, heun=False), held_out)
            line = f"step {(chunk + 1) * args.chunk_size:5d} loss {float(losses.mean()):.4f} euler {float(quick):.4f}"
            if chunk % 8 == 7:
                fine = energy_distance(generate(smooth, k_eval, 768, 40, heun=True), held_out)
                line += f" heun {float(fine):.4f}"
            print(f"{line}  {time.perf_counter() - start:.1f}s")


if __name__ == "__main__":
    main()
