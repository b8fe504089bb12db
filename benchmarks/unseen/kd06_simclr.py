"""SimCLR on synthetic textures (equinox), then a k-NN probe. Augmentation is done on the fly."""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

SIDE = 20
CLASSES = 6
BATCH = 64


def textures(n, seed):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, CLASSES, n)
    yy, xx = np.mgrid[:SIDE, :SIDE]
    freq = 0.3 + 0.25 * label[:, None, None]
    phase = rng.uniform(0, 6.28, (n, 1, 1))
    tilt = rng.uniform(-0.5, 0.5, (n, 1, 1)) + label[:, None, None] * 0.5
    wave = np.sin(freq * (np.cos(tilt) * xx + np.sin(tilt) * yy) + phase)
    return (wave + 0.2 * rng.normal(size=wave.shape)).astype(np.float32), label


class RandomResizedCrop:
    def __init__(self, low, high):
        self.low, self.high = low, high

    def __call__(self, rng, img):
        s = int(rng.integers(self.low, self.high + 1))
        y, x = rng.integers(0, SIDE - s + 1, 2)
        rows = y + np.linspace(0, s - 1, SIDE)
        cols = x + np.linspace(0, s - 1, SIDE)
        r0, c0 = np.floor(rows).astype(int), np.floor(cols).astype(int)
        r1, c1 = np.minimum(r0 + 1, SIDE - 1), np.minimum(c0 + 1, SIDE - 1)
        fr, fc = (rows - r0)[:, None], (cols - c0)[None]
        top = img[np.ix_(r0, c0)] * (1 - fc) + img[np.ix_(r0, c1)] * fc
        bottom = img[np.ix_(r1, c0)] * (1 - fc) + img[np.ix_(r1, c1)] * fc
        return top * (1 - fr) + bottom * fr


class ElasticJitter:
    """Smooth random displacement field, as in Simard et al."""

    def __init__(self, sigma, strength):
        ax = np.arange(-4, 5)
        k = np.exp(-ax ** 2 / (2 * sigma ** 2))
        self.kernel = k / k.sum()
        self.strength = strength

    def smooth(self, field):
        field = np.apply_along_axis(np.convolve, 0, field, self.kernel, "same")
        return np.apply_along_axis(np.convolve, 1, field, self.kernel, "same")

    def __call__(self, rng, img):
        yy, xx = np.mgrid[:SIDE, :SIDE]
        dy = self.smooth(rng.normal(size=img.shape)) * self.strength
        dx = self.smooth(rng.normal(size=img.shape)) * self.strength
        y = np.clip(np.rint(yy + dy), 0, SIDE - 1).astype(int)
        x = np.clip(np.rint(xx + dx), 0, SIDE - 1).astype(int)
        return img[y, x]


class Augment:
    def __init__(self, *ops):
        self.ops = ops

    def view(self, rng, batch):
        out = []
        for img in batch:
            for op in self.ops:
                img = op(rng, img)
            out.append(img * rng.uniform(0.6, 1.4))
        return np.stack(out)[:, None].astype(np.float32)


class Encoder(eqx.Module):
    convs: list
    proj: eqx.nn.MLP

    def __init__(self, key):
        k = jax.random.split(key, 4)
        width = [1, 12, 24, 32]
        self.convs = [eqx.nn.Conv2d(width[i], width[i + 1], 3, stride=2, padding=1, key=k[i]) for i in range(3)]
        self.proj = eqx.nn.MLP(32, 32, 64, 1, key=k[3])

    def features(self, x):
        for conv in self.convs:
            x = jax.nn.relu(conv(x))
        return x.mean((1, 2))

    def __call__(self, x):
        z = self.proj(self.features(x))
        return z / (jnp.linalg.norm(z) + 1e-6)


def nt_xent(model, a, b, temperature):
    z = jax.vmap(model)(jnp.concatenate([a, b]))
    sim = z @ z.T / temperature - 1e9 * jnp.eye(len(z))
    n = len(a)
    pair = jnp.concatenate([jnp.arange(n) + n, jnp.arange(n)])
    return optax.softmax_cross_entropy_with_integer_labels(sim, pair).mean()


def main():
    images, labels = textures(704, 0)
    rng = np.random.default_rng(1)
    augment = Augment(RandomResizedCrop(12, SIDE), ElasticJitter(2.0, 3.0))
    model = Encoder(jax.random.key(0))
    tx = optax.adam(optax.cosine_decay_schedule(2e-3, 352))
    opt_state = tx.init(eqx.filter(model, eqx.is_array))

    @eqx.filter_jit
    def step(model, opt_state, a, b):
        loss, grads = eqx.filter_value_and_grad(nt_xent)(model, a, b, 0.2)
        updates, opt_state = tx.update(grads, opt_state)
        return eqx.apply_updates(model, updates), opt_state, loss

    for epoch in range(32):
        order = rng.permutation(len(images))
        losses = []
        for i in range(0, len(order), BATCH):
            batch = images[order[i:i + BATCH]]
            model, opt_state, loss = step(model, opt_state, augment.view(rng, batch), augment.view(rng, batch))
            losses.append(loss)
        if epoch % 8 == 7:
            print(f"epoch {epoch}: nt-xent {float(jnp.stack(losses).mean()):.3f}")

    feats = eqx.filter_jit(lambda m, x: jax.vmap(m.features)(x))
    test_x, test_y = textures(200, 5)
    f, g = np.asarray(feats(model, images[:, None])), np.asarray(feats(model, test_x[:, None]))
    nearest = ((g[:, None] - f[None]) ** 2).sum(-1).argsort(1)[:, :7]
    guess = np.array([np.bincount(labels[row]).argmax() for row in nearest])
    print(f"7-NN accuracy {(guess == test_y).mean():.3f}")


if __name__ == "__main__":
    main()
