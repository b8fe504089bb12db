"""Detector of round cells in synthetic microscopy images, evaluated with average precision."""
import time
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

SIZE, GRID = 64, 16


def render(rng):
    yy, xx = np.mgrid[:SIZE, :SIZE]
    img = 0.1 * rng.standard_normal((SIZE, SIZE))
    boxes = []
    for _ in range(rng.integers(2, 9)):
        r = rng.uniform(3, 7)
        cx, cy = rng.uniform(r, SIZE - r, 2)
        img += np.exp(-(((xx - cx) ** 2 + (yy - cy) ** 2) / r**2) ** 2)
        boxes.append([cx - r, cy - r, cx + r, cy + r])
    return img[None].astype(np.float32), np.array(boxes, np.float32)


def encode(boxes):
    """Heat map of the centres and box sizes per grid cell."""
    target = np.zeros((3, GRID, GRID), np.float32)
    for x0, y0, x1, y1 in boxes:
        gx, gy = int((x0 + x1) / 2 * GRID / SIZE), int((y0 + y1) / 2 * GRID / SIZE)
        target[:, gy, gx] = 1.0, (x1 - x0) / 16, (y1 - y0) / 16
    return target


class Detector(eqx.Module):
    convs: list
    head: eqx.nn.Conv2d

    def __init__(self, key):
        ks = jax.random.split(key, 4)
        dims = [1, 16, 24]
        self.convs = [eqx.nn.Conv2d(a, b, 3, stride=s, padding=1, key=k)
                      for a, b, s, k in zip(dims[:-1], dims[1:], (2, 2), ks)]
        self.head = eqx.nn.Conv2d(24, 3, 1, key=ks[3])

    def __call__(self, img):
        for c in self.convs:
            img = jax.nn.silu(c(img))
        return self.head(img)


def loss_fn(model, img, target):
    out = jax.vmap(model)(img)
    heat = optax.sigmoid_focal_loss(out[:, 0], target[:, 0], alpha=0.8).sum((1, 2)).mean()
    size = (jnp.abs(out[:, 1:] - target[:, 1:]) * target[:, :1]).sum((1, 2, 3)).mean()
    return heat + size


tx = optax.adam(4e-3)


@eqx.filter_jit(donate="all")
def step(model, opt_state, img, target):
    loss, g = eqx.filter_value_and_grad(loss_fn)(model, img, target)
    upd, opt_state = tx.update(g, opt_state)
    return eqx.apply_updates(model, upd), opt_state, loss


@eqx.filter_jit
def decode(model, img):
    out = jax.vmap(model)(img)
    n = img.shape[0]
    c = (jnp.arange(GRID) + 0.5) * SIZE / GRID
    cx, cy = jnp.broadcast_to(c, (n, GRID, GRID)), jnp.broadcast_to(c[:, None], (n, GRID, GRID))
    w, h = out[:, 1] * 8, out[:, 2] * 8
    boxes = jnp.stack([cx - w, cy - h, cx + w, cy + h], -1).reshape(n, -1, 4)
    return boxes, jax.nn.sigmoid(out[:, 0]).reshape(n, -1)


def iou(a, b):
    lo = jnp.maximum(a[:, None, :2], b[None, :, :2])
    hi = jnp.minimum(a[:, None, 2:], b[None, :, 2:])
    inter = jnp.prod(jnp.clip(hi - lo, 0), -1)
    area = lambda z: jnp.prod(jnp.clip(z[:, 2:] - z[:, :2], 0), -1)
    return inter / (area(a)[:, None] + area(b)[None] - inter + 1e-6)


def suppress(boxes, scores, thresh=0.2, overlap=0.4):
    keep = scores > thresh
    boxes, scores = boxes[keep], scores[keep]
    order = jnp.argsort(-scores)
    boxes, scores = boxes[order], scores[order]
    clash = np.asarray(iou(boxes, boxes)) > overlap
    alive = np.ones(len(boxes), bool)
    for i in range(len(boxes)):
        if alive[i]:
            alive[i + 1 :] &= ~clash[i, i + 1 :]
    return np.asarray(boxes)[alive], np.asarray(scores)[alive]


def average_precision(model, images, truths):
    hits, conf, total = [], [], 0
    all_boxes, all_scores = decode(model, images)
    for b, s, gt in zip(all_boxes, all_scores, truths):
        boxes, scores = suppress(b, s)
        total += len(gt)
        used = set()
        for box, sc in zip(boxes, scores):
            ov = np.linalg.norm((gt[:, :2] + gt[:, 2:]) / 2 - (box[:2] + box[2:]) / 2, axis=1)
            j = int(ov.argmin())
            hits.append(ov[j] < 4 and j not in used)
            used.add(j)
            conf.append(sc)
    h = np.array(hits, float)[np.argsort(-np.array(conf))] if hits else np.zeros(1)
    prec = h.cumsum() / np.arange(1, len(h) + 1)
    return float((prec * h).sum() / total)


def main(epochs=2, per_epoch=20, batch=16):
    rng = np.random.default_rng(0)
    val = [render(rng) for _ in range(6)]
    images, truths = np.stack([v[0] for v in val]), [v[1] for v in val]
    model = eqx.filter_jit(Detector)(jax.random.key(0))
    opt_state = eqx.filter_jit(tx.init)(eqx.filter(model, eqx.is_array))
    t0 = time.time()
    for epoch in range(epochs):
        for _ in range(per_epoch):
            data = [render(rng) for _ in range(batch)]
            img, target = np.stack([d[0] for d in data]), np.stack([encode(d[1]) for d in data])
            model, opt_state, loss = step(model, opt_state, img, target)
        ap = average_precision(model, images, truths)
        print(f"epoch {epoch} loss {float(loss):.3f} AP {ap:.3f} {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
