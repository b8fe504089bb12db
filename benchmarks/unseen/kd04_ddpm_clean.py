"""DDPM on synthetic 16x16 "galaxy" images with flax.nnx; trains, samples, compares radial profiles."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

STEPS = 200
SIDE = 16
N_TRAIN = 1024
BATCH = 64
EPOCHS = 12

betas = jnp.linspace(1e-4, 0.03, STEPS)
alphas = 1.0 - betas
abar = jnp.cumprod(alphas)


def galaxies(n, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2
    angle = rng.uniform(0, np.pi, (n, 1, 1))
    q = rng.uniform(0.3, 1.0, (n, 1, 1))
    scale = rng.uniform(1.5, 3.0, (n, 1, 1))
    u = xx * np.cos(angle) + yy * np.sin(angle)
    v = (-xx * np.sin(angle) + yy * np.cos(angle)) / q
    img = np.exp(-np.sqrt(u ** 2 + v ** 2) / scale)
    return (2 * img - 1)[..., None].astype(np.float32)


class Block(nnx.Module):
    def __init__(self, cin, cout, rngs):
        self.conv1 = nnx.Conv(cin, cout, (3, 3), rngs=rngs)
        self.conv2 = nnx.Conv(cout, cout, (3, 3), rngs=rngs)
        self.time = nnx.Linear(32, cout, rngs=rngs)
        self.skip = nnx.Conv(cin, cout, (1, 1), rngs=rngs)
        self.norm = nnx.GroupNorm(cout, num_groups=4, rngs=rngs)

    def __call__(self, x, temb):
        h = nnx.silu(self.conv1(x)) + self.time(temb)[:, None, None]
        return self.skip(x) + self.conv2(nnx.silu(self.norm(h)))


class Denoiser(nnx.Module):
    def __init__(self, rngs):
        self.down = Block(1, 16, rngs)
        self.mid = Block(16, 32, rngs)
        self.up = Block(48, 16, rngs)
        self.out = nnx.Conv(16, 1, (3, 3), rngs=rngs)

    def __call__(self, x, t):
        freqs = jnp.exp(-jnp.arange(16) / 2.0)
        ang = t[:, None] * freqs
        temb = jnp.concatenate([jnp.sin(ang), jnp.cos(ang)], -1)
        a = self.down(x, temb)
        b = self.mid(nnx.avg_pool(a, (2, 2), (2, 2)), temb)
        b = jax.image.resize(b, (*a.shape[:3], b.shape[-1]), "nearest")
        return self.out(nnx.silu(self.up(jnp.concatenate([a, b], -1), temb)))


@nnx.jit
def train_step(model, optimizer, x0, key):
    kt, kn = jax.random.split(key)
    t = jax.random.randint(kt, (len(x0),), 0, STEPS)
    noise = jax.random.normal(kn, x0.shape)
    a = abar[t][:, None, None, None]
    xt = jnp.sqrt(a) * x0 + jnp.sqrt(1 - a) * noise

    def loss_fn(m):
        return ((m(xt, t.astype(jnp.float32)) - noise) ** 2).mean()

    loss, grads = nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, grads)
    return loss


@nnx.jit(static_argnames="n")
def sample(model, key, n):
    graph, state = nnx.split(model)

    def reverse(carry, t):
        x, key = carry
        key, sub = jax.random.split(key)
        eps = nnx.merge(graph, state)(x, jnp.full((n,), t, jnp.float32))
        mean = (x - betas[t] / jnp.sqrt(1 - abar[t]) * eps) / jnp.sqrt(alphas[t])
        x = mean + jnp.where(t > 0, jnp.sqrt(betas[t]), 0.0) * jax.random.normal(sub, x.shape)
        return (x, key), None

    k0, k1 = jax.random.split(key)
    init = jax.random.normal(k0, (n, SIDE, SIDE, 1))
    (x, _), _ = jax.lax.scan(reverse, (init, k1), jnp.arange(STEPS - 1, -1, -1))
    return x


def radial_profile(img):
    yy, xx = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2
    r = np.hypot(xx, yy).astype(int).ravel()
    flat = img.mean(0).ravel()
    return np.bincount(r, flat) / np.bincount(r)


def main():
    data = galaxies(N_TRAIN, 0)
    model = Denoiser(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(2e-3), wrt=nnx.Param)
    rng = np.random.default_rng(0)
    key = jax.random.key(1)
    for epoch in range(EPOCHS):
        order = rng.permutation(N_TRAIN)
        losses = []
        for i in range(0, N_TRAIN, BATCH):
            key, sub = jax.random.split(key)
            losses.append(train_step(model, optimizer, data[order[i:i + BATCH]], sub))
        print(f"epoch {epoch}: loss {float(jnp.stack(losses).mean()):.4f}")
    sheets = [sample(model, jax.random.key(90 + k), 32) for k in range(3)]
    drawn = np.concatenate([np.asarray(x) for x in sheets])
    err = np.abs(radial_profile(drawn[..., 0]) - radial_profile(data[..., 0])).mean()
    print(f"radial profile error {err:.3f}")


if __name__ == "__main__":
    main()
