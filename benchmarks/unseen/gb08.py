# %% Keyword spotting on synthetic tones: log-mel features, a small conv net, random crops as augmentation.
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

RATE, CLIP, CROP = 4000, 4800, 4000
FRAME, HOP, MELS = 256, 128, 32
CLASSES, TRAIN, TEST = 6, 480, 240
EPOCHS, BATCH = 4, 32
rng = np.random.default_rng(2)


# %% data: every class is a chirp pattern with its own two segments
def make_clips(n):
    t = np.arange(CLIP) / RATE
    y = rng.integers(0, CLASSES, n)
    lo, hi = 250 + 90 * y, 900 + 110 * ((y * 3) % CLASSES)
    centre = rng.uniform(0.45, 0.75, n)[:, None]
    first = np.sin(2 * np.pi * lo[:, None] * t) * np.exp(-((t - centre + 0.15) / 0.1) ** 2)
    second = np.sin(2 * np.pi * hi[:, None] * t) * np.exp(-((t - centre - 0.15) / 0.1) ** 2)
    return (first + second + 0.5 * rng.normal(size=(n, CLIP))).astype(np.float32), y.astype(np.int32)


train_x, train_y = make_clips(TRAIN)
test_x, test_y = make_clips(TEST)
train_x = jnp.asarray(train_x)          # stays on the device
test_x = jnp.asarray(test_x[:, (CLIP - CROP) // 2:(CLIP + CROP) // 2])


# %% features
def mel_matrix():
    mel = lambda f: 2595 * np.log10(1 + f / 700)
    points = 700 * (10 ** (np.linspace(mel(60), mel(RATE / 2), MELS + 2) / 2595) - 1)
    bins = np.fft.rfftfreq(FRAME, 1 / RATE)
    up = (bins[:, None] - points[:-2]) / (points[1:-1] - points[:-2])
    down = (points[2:] - bins[:, None]) / (points[2:] - points[1:-1])
    return np.maximum(0, np.minimum(up, down)).astype(np.float32)


MEL = mel_matrix()
WINDOW = np.hanning(FRAME).astype(np.float32)
INDEX = np.arange(0, CROP - FRAME + 1, HOP)[:, None] + np.arange(FRAME)


def log_mel(wave):
    spectrum = jnp.abs(jnp.fft.rfft(wave[:, INDEX] * WINDOW)) ** 2
    return jnp.log(spectrum @ MEL + 1e-3)


# %% model
class Spotter(nn.Module):
    @nn.compact
    def __call__(self, feats):
        x = (feats - feats.mean((1, 2), keepdims=True)) / 2.0
        for width in (32, 48):
            x = nn.relu(nn.Conv(width, (5,), strides=(2,))(x))
        x = nn.LayerNorm()(x)
        return nn.Dense(CLASSES)(x.max(axis=1))


model = Spotter()
params = model.init(jax.random.key(0), log_mel(test_x[:1]))
tx = optax.adam(2e-3)
opt_state = tx.init(params)


@jax.jit
def step(params, opt_state, wave, label):
    def loss_fn(p):
        return optax.softmax_cross_entropy_with_integer_labels(model.apply(p, log_mel(wave)), label).mean()

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = tx.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss


@jax.jit
def predict(params, wave):
    return model.apply(params, log_mel(wave)).argmax(-1)


def augment(rows):
    """A random crop and a random gain for each clip."""
    crops = []
    for r in rows:
        start = int(rng.integers(0, CLIP - CROP))
        gain = rng.uniform(0.7, 1.3)
        crops.append(train_x[r][start:start + CROP] * gain)
    return jnp.stack(crops)


# %% training
for epoch in range(EPOCHS):
    order = rng.permutation(TRAIN)
    losses = []
    for i in range(0, TRAIN, BATCH):
        rows = order[i:i + BATCH]
        params, opt_state, loss = step(params, opt_state, augment(rows), train_y[rows])
        losses.append(loss)
    # the last-but-one accuracy comes from the fixed centre crop, in batches, to bound the memory
    hits = sum(int((predict(params, test_x[i:i + 80]) == test_y[i:i + 80]).sum()) for i in range(0, TEST, 80))
    print(f"epoch {epoch + 1:2d}  loss {np.mean(jax.device_get(losses)):.3f}  test accuracy {hits / TEST:.3f}")
    jax.clear_caches()                  # keep the footprint small between epochs
