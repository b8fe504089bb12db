"""Two phases on a mesh of devices: masked pretraining of an encoder, then a probe and fine-tuning."""
import os
import tempfile
import time
from functools import partial

import jax

jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_cpu_enable_async_dispatch", False)

import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

PATCHES, PIXELS, DIM, CLASSES = 16, 36, 48, 5


def dense(rng, a, b):
    w = rng.standard_normal((a, b)) / np.sqrt(a)
    return {"w": w.astype(np.float32), "b": np.zeros(b, np.float32)}


def lin(p, x):
    return x @ p["w"] + p["b"]


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def init_encoder(rng, depth=1):
    return {"embed": dense(rng, PIXELS, DIM), "pos": np.zeros((PATCHES, DIM), np.float32),
            "blocks": [{"qkv": dense(rng, DIM, 3 * DIM), "out": dense(rng, DIM, DIM),
                        "up": dense(rng, DIM, 2 * DIM), "down": dense(rng, 2 * DIM, DIM)}
                       for _ in range(depth)]}


def encode(p, x):
    x = lin(p["embed"], x) + p["pos"]
    for b in p["blocks"]:
        q, k, v = jnp.split(lin(b["qkv"], norm(x)), 3, -1)
        att = jax.nn.softmax(jnp.einsum("bid,bjd->bij", q, k) / np.sqrt(DIM))
        x = x + lin(b["out"], att @ v)
        x = x + lin(b["down"], jax.nn.gelu(lin(b["up"], norm(x))))
    return norm(x)


def masked_loss(params, batch, key):
    x = batch["image"]
    hide = jax.random.bernoulli(key, 0.5, x.shape[:2])[..., None]
    out = lin(params["decoder"], encode(params["encoder"], jnp.where(hide, 0.0, x)))
    return ((out - x) ** 2 * hide).sum() / (hide.sum() * PIXELS)


def class_loss(params, batch, key):
    logits = lin(params["head"], encode(params["encoder"], batch["image"]).mean(1))
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()


def build_step(loss, tx, decay):
    """One compiled update; each phase of the training builds its own."""

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def step(params, opt_state, ema, batch, key, i):
        value, g = jax.value_and_grad(loss)(params, batch, jax.random.fold_in(key, i))
        upd, opt_state = tx.update(g, opt_state, params)
        params = optax.apply_updates(params, upd)
        return params, opt_state, optax.incremental_update(params, ema, 1 - decay), value

    return step


@jax.jit
def hits(params, batch):
    logits = lin(params["head"], encode(params["encoder"], batch["image"]).mean(1))
    return (logits.argmax(-1) == batch["label"]).sum()


class Textures:
    def __init__(self, sharding, batch, seed):
        self.sharding, self.batch, self.rng = sharding, batch, np.random.default_rng(seed)
        self.base = np.random.default_rng(11).normal(size=(CLASSES, PATCHES, PIXELS))

    def __next__(self):
        y = self.rng.integers(0, CLASSES, self.batch)
        gain = self.rng.normal(0.5, 0.3, (self.batch, 1, 1))
        x = gain * self.base[y] + self.rng.standard_normal((self.batch, PATCHES, PIXELS))
        host = {"image": x.astype(np.float32), "label": y.astype(np.int32)}
        return jax.device_put(host, self.sharding)


def run_phase(name, loss, params, tx, data, steps, everywhere, folder):
    params = jax.device_put(params, everywhere)
    opt_state = jax.jit(tx.init, out_shardings=everywhere)(params)
    ema = jax.jit(partial(jax.tree.map, jnp.copy), out_shardings=everywhere)(params)
    step = build_step(loss, tx, 0.99)
    key, values, t0 = jax.device_put(jax.random.key(len(name)), everywhere), [], time.time()
    for i in range(steps):
        params, opt_state, ema, value = step(params, opt_state, ema, next(data), key, np.int32(i))
        values.append(value)
        if (i + 1) % 40 == 0:
            print(f"{name} {i + 1} loss {np.mean(jax.device_get(values)):.4f} {time.time() - t0:.1f}s")
            values = []
    leaves = jax.device_get(jax.tree.leaves(ema))
    np.savez(os.path.join(folder, name + ".npz"), *leaves)
    return ema


def main(steps=150, batch=32):
    mesh = Mesh(np.array(jax.devices()), ("data",))
    rows, everywhere = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    folder = tempfile.mkdtemp()
    rng = np.random.default_rng(0)
    data, test = Textures(rows, batch, 0), [next(Textures(rows, 64, s)) for s in range(50, 54)]
    params = {"encoder": init_encoder(rng), "decoder": dense(rng, DIM, PIXELS)}
    tx = optax.adamw(optax.cosine_decay_schedule(2e-3, steps))
    encoder = run_phase("pretrain", masked_loss, params, tx, data, steps, everywhere, folder)["encoder"]
    params = {"encoder": encoder, "head": dense(rng, DIM, CLASSES)}
    for name, scale, n in (("probe", 0.0, 80), ("finetune", 0.2, 120)):
        rates = {"encoder": optax.chain(optax.adam(1e-3), optax.scale(scale)), "head": optax.adam(2e-3)}
        tx = optax.multi_transform(rates, {"encoder": "encoder", "head": "head"})
        params = run_phase(name, class_loss, params, tx, data, n, everywhere, folder)
        right = sum(jax.device_get([hits(params, b) for b in test]))
        print(f"{name} accuracy {right / 256:.3f}")


if __name__ == "__main__":
    main()
