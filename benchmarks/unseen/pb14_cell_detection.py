"""Finds cells in small microscopy tiles: an anchor-free detector, NMS and average precision."""
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

SIZE, CELL, TOP = 48, 6, 30


def tile(rng):
    yy, xx = np.mgrid[:SIZE, :SIZE]
    image, boxes = 0.1 * rng.normal(size=(SIZE, SIZE)), []
    for _ in range(rng.integers(3, 8)):
        cy, cx = rng.uniform(5, SIZE - 5, 2)
        ry, rx = rng.uniform(2.5, 5, 2)
        image += np.exp(-2 * (((yy - cy) / ry) ** 2 + ((xx - cx) / rx) ** 2))
        boxes.append((cy - ry, cx - rx, cy + ry, cx + rx))
    return image.astype(np.float32)[None], np.array(boxes, np.float32)


def targets(boxes):
    n = SIZE // CELL
    heat, reg = np.zeros((n, n), np.float32), np.zeros((4, n, n), np.float32)
    for b in boxes:
        cy, cx = (b[0] + b[2]) / 2, (b[1] + b[3]) / 2
        i, j = int(cy // CELL), int(cx // CELL)
        heat[i, j] = 1
        reg[:, i, j] = cy / CELL - i, cx / CELL - j, np.log(b[2] - b[0]), np.log(b[3] - b[1])
    return heat, reg


class Detector(eqx.Module):
    convs: list
    head: eqx.nn.Conv2d

    def __init__(self, key):
        k = jax.random.split(key, 4)
        self.convs = [eqx.nn.Conv2d(1, 12, 3, 2, 1, key=k[0]), eqx.nn.Conv2d(12, 24, 3, 3, 1, key=k[1]),
                      eqx.nn.Conv2d(24, 24, 3, 1, 1, key=k[2])]
        self.head = eqx.nn.Conv2d(24, 5, 1, key=k[3])

    def __call__(self, image):
        h = image
        for conv in self.convs:
            h = jax.nn.relu(conv(h))
        return self.head(h)


@eqx.filter_jit
def train_step(model, opt, images, heat, reg, tx):
    def loss_fn(m):
        out = jax.vmap(m)(images)
        obj = optax.sigmoid_focal_loss(out[:, 0], heat, alpha=0.75).sum()
        box = (jnp.abs(out[:, 1:] - reg) * heat[:, None]).sum()
        return (obj + box) / heat.sum()

    loss, grads = eqx.filter_value_and_grad(loss_fn)(model)
    updates, opt = tx.update(grads, opt, model)
    return eqx.apply_updates(model, updates), opt, loss


@eqx.filter_jit
def decode(model, images):
    out = jax.vmap(model)(images)
    n = out.shape[-1]
    gy, gx = jnp.meshgrid(jnp.arange(n), jnp.arange(n), indexing="ij")
    cy, cx = (out[:, 1] + gy) * CELL, (out[:, 2] + gx) * CELL
    h, w = jnp.exp(jnp.clip(out[:, 3], 0, 4)) / 2, jnp.exp(jnp.clip(out[:, 4], 0, 4)) / 2
    boxes = jnp.stack([cy - h, cx - w, cy + h, cx + w], -1).reshape(len(images), -1, 4)
    scores, idx = jax.lax.top_k(jax.nn.sigmoid(out[:, 0]).reshape(len(images), -1), TOP)
    return jnp.take_along_axis(boxes, idx[..., None], 1), scores


def iou(box, others):
    lo = jnp.maximum(box[:2], others[:, :2])
    hi = jnp.minimum(box[2:], others[:, 2:])
    inter = jnp.prod(jnp.clip(hi - lo, 0), -1)
    area = lambda b: jnp.prod(jnp.clip(b[..., 2:] - b[..., :2], 0), -1)
    return inter / (area(box) + area(others) - inter + 1e-6)


def suppress(boxes, scores, threshold=0.4):
    alive = jnp.ones(len(scores), bool)
    for i in range(len(scores)):
        if not alive[i]:
            continue
        overlap = iou(boxes[i], boxes) > threshold
        alive = alive & ~(overlap & (jnp.arange(len(scores)) > i))
    return np.asarray(boxes[alive]), np.asarray(scores[alive])


def average_precision(found, truths):
    rows = []
    for (boxes, scores), truth in zip(found, truths):
        used = np.zeros(len(truth), bool)
        for b, s in zip(boxes, scores):
            lo, hi = np.maximum(b[:2], truth[:, :2]), np.minimum(b[2:], truth[:, 2:])
            inter = np.prod(np.clip(hi - lo, 0, None), -1)
            union = np.prod(b[2:] - b[:2]) + np.prod(truth[:, 2:] - truth[:, :2], -1) - inter
            ov = np.where(used, 0, inter / union)
            hit = ov.max() > 0.4
            used[ov.argmax()] |= hit
            rows.append((s, hit))
    rows.sort(key=lambda r: -r[0])
    hits = np.cumsum([r[1] for r in rows])
    precision = hits / np.arange(1, len(hits) + 1)
    return float((precision * [r[1] for r in rows]).sum() / sum(map(len, truths)))


def main():
    rng = np.random.default_rng(0)
    train, val = [tile(rng) for _ in range(256)], [tile(rng) for _ in range(24)]
    heat, reg = (np.stack(p) for p in zip(*(targets(b) for _, b in train)))
    images, held = np.stack([t[0] for t in train]), np.stack([t[0] for t in val])
    model, tx = Detector(jax.random.key(0)), optax.adam(3e-3)
    opt = tx.init(eqx.filter(model, eqx.is_array))
    began = time.time()
    for epoch in range(4):
        order, losses = rng.permutation(len(images)), []
        for b in np.split(order, 16):
            model, opt, loss = train_step(model, opt, images[b], heat[b], reg[b], tx)
            losses.append(loss)
        boxes, scores = decode(model, held)
        found = [suppress(b, s) for b, s in zip(boxes, scores)]
        print(f"epoch {epoch} loss {np.mean(jax.device_get(losses)):.3f} "
              f"AP40 {average_precision(found, [v[1] for v in val]):.3f} {time.time() - began:.1f}s", flush=True)


if __name__ == "__main__":
    main()
