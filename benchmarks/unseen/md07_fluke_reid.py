"""Whale re-identification from fluke outlines: instance discrimination with a memory bank (equinox).

Every photo has a slot in the bank (Wu et al. 2018), moved towards its newest embedding; the
softmax is approximated with random negatives from the bank.
"""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

PHOTOS = 80_000
DIM = 128
OUTLINE = 64           # radial samples of the trailing edge
BATCH = 64
NEGATIVES = 512
TEMPERATURE = 0.1
STEPS = 300


class FlukeCatalogue:
    """Outlines made on demand: every whale has its own notches, each photo adds pose and noise."""

    def __init__(self, whales, seed):
        rng = np.random.default_rng(seed)
        self.basis = np.sin(np.outer(np.arange(1, 17), np.linspace(0, np.pi, OUTLINE)))
        self.shape = rng.normal(size=(whales, 16)) / np.arange(1, 17) ** 0.5
        self.owner = rng.integers(whales, size=PHOTOS)

    def photos(self, idx, rng):
        pose = 1 + 0.1 * rng.normal(size=(len(idx), 1))
        line = pose * (self.shape[self.owner[idx]] @ self.basis)
        return (line + 0.9 * rng.normal(size=line.shape)).astype(np.float32)


class Encoder(eqx.Module):
    layers: list
    norms: list
    head: eqx.nn.Linear

    def __init__(self, key):
        k = jax.random.split(key, 5)
        sizes = [OUTLINE, 128, 128, 128, 128]
        self.layers = [eqx.nn.Linear(a, b, key=kk) for a, b, kk in zip(sizes, sizes[1:], k)]
        self.norms = [eqx.nn.LayerNorm(s) for s in sizes[1:]]
        self.head = eqx.nn.Linear(sizes[-1], DIM, key=k[-1])

    def __call__(self, x):
        for layer, norm in zip(self.layers, self.norms):
            x = jax.nn.gelu(norm(layer(x)))
        z = self.head(x)
        return z / (jnp.linalg.norm(z) + 1e-6)


class MemoryBank:
    def __init__(self, size, dim, key, momentum=0.5):
        z = jax.random.normal(key, (size, dim))
        self.slots = z / jnp.linalg.norm(z, axis=1, keepdims=True)
        self.momentum = momentum

    def lookup(self, idx):
        return self.slots[idx]

    def refresh(self, idx, z):
        mixed = self.momentum * self.slots[idx] + (1 - self.momentum) * z
        mixed = mixed / jnp.linalg.norm(mixed, axis=1, keepdims=True)
        self.slots = self.slots.at[idx].set(mixed)


@eqx.filter_jit
def loss_and_grads(encoder, x, positive, negatives):
    def loss_fn(enc):
        z = jax.vmap(enc)(x)
        pos = jnp.sum(z * positive, axis=1, keepdims=True)
        logits = jnp.concatenate([pos, z @ negatives.T], axis=1) / TEMPERATURE
        return -jax.nn.log_softmax(logits)[:, 0].mean(), z

    return eqx.filter_value_and_grad(loss_fn, has_aux=True)(encoder)


class Trainer:
    def __init__(self, encoder, bank, optim):
        self.encoder, self.bank, self.optim = encoder, bank, optim
        self.opt_state = optim.init(eqx.filter(encoder, eqx.is_inexact_array))

    def step(self, x, idx, negative_idx):
        positive, negatives = self.bank.lookup(idx), self.bank.lookup(negative_idx)
        (loss, z), grads = loss_and_grads(self.encoder, x, positive, negatives)
        self.apply(grads)
        self.bank.refresh(idx, z)
        return loss

    def apply(self, grads):
        params = eqx.filter(self.encoder, eqx.is_inexact_array)
        updates, self.opt_state = self.optim.update(grads, self.opt_state, params)
        self.encoder = eqx.apply_updates(self.encoder, updates)


@eqx.filter_jit
def embed(encoder, x):
    return jax.vmap(encoder)(x)


def top1(encoder, catalogue, rng):
    idx = rng.choice(PHOTOS, 1500, replace=False)
    z = np.array(embed(encoder, catalogue.photos(idx, rng)))
    sim = z @ z.T
    np.fill_diagonal(sim, -1)
    return float((catalogue.owner[idx][sim.argmax(1)] == catalogue.owner[idx]).mean())


def main():
    rng = np.random.default_rng(4)
    catalogue = FlukeCatalogue(whales=200, seed=0)
    k_enc, k_bank = jax.random.split(jax.random.key(2))
    optim = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3, weight_decay=1e-4))
    trainer = Trainer(Encoder(k_enc), MemoryBank(PHOTOS, DIM, k_bank), optim)
    print(f"before: top-1 {top1(trainer.encoder, catalogue, rng):.3f}")
    for step in range(STEPS):
        idx = rng.choice(PHOTOS, BATCH, replace=False)
        negative_idx = rng.integers(0, PHOTOS, NEGATIVES)
        loss = trainer.step(catalogue.photos(idx, rng), idx, negative_idx)
        if (step + 1) % 100 == 0:
            print(f"step {step + 1:4d} loss {float(loss):.3f} "
                  f"top-1 {top1(trainer.encoder, catalogue, rng):.3f}", flush=True)


if __name__ == "__main__":
    main()
