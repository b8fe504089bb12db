"""Discrete autoencoder for binary sensor codes (flax nnx) with Gumbel-softmax latents and an annealed temperature."""
import math
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx


class Options:
    features = 96
    latents = 8
    choices = 12
    hidden = 128
    batch = 64
    steps = 400
    anneal_every = 130
    tau_start, tau_end, tau_rate = 2.0, 0.4, 2e-3
    lr = 1e-3


def sensor_codes(count, features, seed):
    rng = np.random.default_rng(seed)
    prototypes = np.random.default_rng(7).random((24, features)) < 0.3
    picks = rng.integers(0, 24, (count, 2))
    x = prototypes[picks[:, 0]] ^ prototypes[picks[:, 1]]
    return (x ^ (rng.random(x.shape) < 0.02)).astype(np.float32)


class Quantizer(nnx.Module):
    def __init__(self, tau, choices):
        self.tau = tau
        self.choices = choices

    def __call__(self, logits, key):
        gumbel = jax.random.gumbel(key, logits.shape)
        soft = jax.nn.softmax((logits + gumbel) / self.tau, axis=-1)
        hard = jax.nn.one_hot(soft.argmax(-1), self.choices)
        return soft + jax.lax.stop_gradient(hard - soft)

    def hard(self, logits):
        return jax.nn.one_hot(logits.argmax(-1), self.choices)


class MLP(nnx.Module):
    def __init__(self, sizes, rngs):
        self.layers = nnx.List([nnx.Linear(a, b, rngs=rngs) for a, b in zip(sizes[:-1], sizes[1:])])
        self.norms = nnx.List([nnx.LayerNorm(b, rngs=rngs) for b in sizes[1:-1]])

    def __call__(self, x):
        for layer, norm in zip(self.layers, self.norms):
            x = nnx.gelu(norm(layer(x)))
        return self.layers[-1](x)


class CodeAutoencoder(nnx.Module):
    def __init__(self, opt, rngs):
        z = opt.latents * opt.choices
        self.latents = opt.latents
        self.encoder = MLP([opt.features, opt.hidden, z], rngs)
        self.decoder = MLP([z, opt.hidden, opt.features], rngs)
        self.quantizer = Quantizer(opt.tau_start, opt.choices)

    def encode(self, x):
        return self.encoder(x).reshape(x.shape[0], self.latents, -1)

    def __call__(self, x, key=None):
        logits = self.encode(x)
        z = self.quantizer.hard(logits) if key is None else self.quantizer(logits, key)
        return self.decoder(z.reshape(x.shape[0], -1)), logits


@nnx.jit
def train_step(model, optimizer, metrics, x, key):
    def loss_fn(model):
        out, logits = model(x, key)
        rec = optax.sigmoid_binary_cross_entropy(out, x).sum(-1).mean()
        logp = jax.nn.log_softmax(logits)
        entropy = -jnp.sum(jnp.exp(logp) * logp, axis=-1).mean()
        return rec - 0.05 * entropy, rec

    (loss, rec), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model)
    optimizer.update(model, grads)
    metrics.update(loss=loss, rec=rec)


@nnx.jit
def bit_errors(model, x):
    out, _ = model(x)
    return jnp.abs((out > 0) - x).sum(-1).mean()


class Anneal:
    """Exponential schedule, applied every few steps as in the original paper."""

    def __init__(self, opt):
        self.opt = opt

    def __call__(self, model, step):
        o = self.opt
        if step % o.anneal_every == 0:
            model.quantizer.tau = max(o.tau_end, o.tau_start * math.exp(-o.tau_rate * step))


def main(opt=Options):
    train = sensor_codes(6000, opt.features, 0)
    test = sensor_codes(512, opt.features, 1)
    model = CodeAutoencoder(opt, nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(opt.lr), wrt=nnx.Param)
    metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"), rec=nnx.metrics.Average("rec"))
    callbacks = [Anneal(opt)]
    rng = np.random.default_rng(3)
    key = jax.random.key(5)
    start = time.perf_counter()
    for step in range(opt.steps):
        for callback in callbacks:
            callback(model, step)
        x = train[rng.integers(0, len(train), opt.batch)]
        train_step(model, optimizer, metrics, x, jax.random.fold_in(key, step))
        if (step + 1) % 100 == 0:
            now = {k: float(v) for k, v in metrics.compute().items()}
            metrics.reset()
            print(f"step {step + 1} rec {now['rec']:.2f} loss {now['loss']:.2f} tau {model.quantizer.tau:.2f} "
                  f"bit errors {float(bit_errors(model, test)):.2f}  {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
