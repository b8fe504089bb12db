"""Retinal vessel segmentation on fundus photographs of several cameras (small U-Net, PyTorch/XLA).

Patches are drawn from the training photographs; validation runs a sliding window over each whole photograph.
"""
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

TILE, STRIDE = 64, 48
EPOCHS, STEPS, BATCH = 6, 24, 4


def fundus(rng, height, width, vessels=14):
    """A photograph (1, H, W) and its vessel mask: bright disc, dark winding vessels, sensor noise."""
    yy, xx = np.mgrid[0:height, 0:width].astype(np.float32)
    r = np.hypot((yy - height / 2) / (height / 2), (xx - width / 2) / (width / 2))
    image = np.clip(1.0 - 0.6 * r, 0, 1)
    mask = np.zeros((height, width), np.float32)
    for _ in range(vessels):
        y, x = height / 2, width / 2
        angle, thick = rng.uniform(0, 2 * math.pi), rng.integers(1, 3)
        for _ in range(int(0.5 * max(height, width))):
            angle += rng.normal(0, 0.15)
            y, x = y + math.sin(angle), x + math.cos(angle)
            if not (thick <= y < height - thick and thick <= x < width - thick):
                break
            mask[int(y) - thick:int(y) + thick, int(x) - thick:int(x) + thick] = 1
    image = image * (1 - 0.45 * mask) + rng.normal(0, 0.06, mask.shape)
    return image.astype(np.float32)[None], mask[None]


class Block(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(nn.Conv2d(cin, cout, 3, padding=1), nn.GroupNorm(4, cout), nn.ReLU(),
                         nn.Conv2d(cout, cout, 3, padding=1), nn.GroupNorm(4, cout), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.d1, self.d2, self.mid = Block(1, w), Block(w, 2 * w), Block(2 * w, 4 * w)
        self.u2, self.u1 = Block(6 * w, 2 * w), Block(3 * w, w)
        self.head = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        up = lambda t: F.interpolate(t, scale_factor=2, mode="nearest")
        b = self.u2(torch.cat([up(c), b], 1))
        a = self.u1(torch.cat([up(b), a], 1))
        return self.head(a)


def soft_dice(logits, target):
    p = torch.sigmoid(logits)
    return 1 - (2 * (p * target).sum() + 1) / (p.sum() + target.sum() + 1)


def to_multiple(tile, k=4):
    h, w = tile.shape[-2:]
    return np.pad(tile, ((0, 0), (0, -h % k), (0, -w % k)), mode="edge")


class SlidingWindow:
    """Probability map of a whole photograph, averaged where windows overlap."""

    def __init__(self, model, device):
        self.model, self.device = model, device

    def windows(self, height, width):
        for top in range(0, max(height - (TILE - STRIDE), 1), STRIDE):
            for left in range(0, max(width - (TILE - STRIDE), 1), STRIDE):
                yield top, left

    @torch.no_grad()
    def __call__(self, image):
        height, width = image.shape[-2:]
        total, count = np.zeros((height, width), np.float32), np.zeros((height, width), np.float32)
        for top, left in self.windows(height, width):
            tile = image[:, top:top + TILE, left:left + TILE]
            h, w = tile.shape[-2:]
            x = torch.from_numpy(to_multiple(tile)).unsqueeze(0).to(self.device)
            prob = torch.sigmoid(self.model(x))[0, 0].cpu().numpy()
            total[top:top + h, left:left + w] += prob[:h, :w]
            count[top:top + h, left:left + w] += 1
        return total / count


def main():
    rng = np.random.default_rng(5)
    torch.manual_seed(5)
    device = torch_xla.device()
    train = [fundus(rng, 232, 240) for _ in range(12)]
    # the validation set comes from other hospitals: each camera has its own frame
    val = [fundus(rng, int(rng.integers(120, 200)), int(rng.integers(120, 200))) for _ in range(7)]
    model = UNet().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=EPOCHS * STEPS)
    predict = SlidingWindow(model, device)
    for epoch in range(EPOCHS):
        model.train()
        running = torch.zeros((), device=device)
        for _ in range(STEPS):
            xs, ys = [], []
            for _ in range(BATCH):
                image, mask = train[rng.integers(len(train))]
                t, l = rng.integers(0, 232 - TILE), rng.integers(0, 240 - TILE)
                xs.append(image[:, t:t + TILE, l:l + TILE])
                ys.append(mask[:, t:t + TILE, l:l + TILE])
            x, y = torch.from_numpy(np.stack(xs)).to(device), torch.from_numpy(np.stack(ys)).to(device)
            optimizer.zero_grad()
            logits = model(x)
            loss = F.binary_cross_entropy_with_logits(logits, y) + soft_dice(logits, y)
            loss.backward()
            xm.optimizer_step(optimizer)
            schedule.step()
            running += loss.detach()
            torch_xla.sync()
        line = f"epoch {epoch}: loss {running.item() / STEPS:.3f}"
        if epoch % 2 == 1:
            model.eval()
            scores = []
            for image, mask in val:
                p = predict(image) > 0.5
                scores.append(2 * (p * mask[0]).sum() / (p.sum() + mask.sum()))
            line += f"  val dice {np.mean(scores):.3f}"
        print(line)


if __name__ == "__main__":
    main()
