"""Binary segmentation of rings with two crop sizes, a moving average of the weights and a plateau schedule."""
import torch_xla
import copy
import os
import random
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader, Dataset, Sampler

CROPS = (16, 24)


class Rings(Dataset):
    def __init__(self, size, seed):
        g = torch.Generator().manual_seed(seed)
        yy, xx = torch.meshgrid(torch.arange(24), torch.arange(24), indexing="ij")
        self.images, self.masks = [], []
        for _ in range(size):
            cx, cy, r = (torch.rand(3, generator=g) * torch.tensor([14.0, 14.0, 5.0]) + torch.tensor([5.0, 5.0, 3.0])).tolist()
            mask = ((((xx - cx) ** 2 + (yy - cy) ** 2).sqrt() - r).abs() < 1.2).float()
            self.masks.append(mask[None])
            self.images.append((mask + 0.4 * torch.randn(24, 24, generator=g))[None])

    def __len__(self):
        return len(self.images)

    def __getitem__(self, key):
        i, crop = key if isinstance(key, tuple) else (key, 24)
        return self.images[i][:, :crop, :crop], self.masks[i][:, :crop, :crop]


class CropSampler(Sampler):
    """One crop size per batch; the larger crop is drawn more often."""

    def __init__(self, size, batch, seed=0):
        self.size, self.batch, self.rng = size, batch, random.Random(seed)

    def __len__(self):
        return self.size // self.batch

    def __iter__(self):
        order = list(range(self.size))
        self.rng.shuffle(order)
        for b in range(len(self)):
            crop = CROPS[self.rng.random() < 0.7]
            yield [(i, crop) for i in order[b * self.batch:(b + 1) * self.batch]]


class TinySeg(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.down = nn.Conv2d(1, width, 4, stride=2, padding=1)
        self.mid = nn.Conv2d(width, width, 3, padding=1)
        self.up = nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1)

    def forward(self, x):
        h = F.relu(self.down(x))
        return self.up(h + F.relu(self.mid(h)))


class WeightAverage:
    def __init__(self, model, decay):
        self.model, self.decay = copy.deepcopy(model).eval().requires_grad_(False), decay

    @torch.no_grad()
    def update(self, model):
        for mine, theirs in zip(self.model.parameters(), model.parameters()):
            mine.lerp_(theirs, 1 - self.decay)


def objective(logits, mask):
    p = logits.sigmoid()
    dice = 1 - (2 * (p * mask).sum() + 1) / (p.sum() + mask.sum() + 1)
    return F.binary_cross_entropy_with_logits(logits, mask) + dice


@torch.no_grad()
def validate(model, loader, device):
    inter, union = torch.zeros((), device=device), torch.zeros((), device=device)
    xm.mark_step()
    for image, mask in loader:
        guess, mask = model(image.to(device)) > 0, mask.to(device) > 0.5
        inter += (guess & mask).sum()
        union += (guess | mask).sum()
        xm.mark_step()
    return (inter / union.clamp(min=1)).item()


def main(epochs=10, batch=8, log_every=100):
    torch.manual_seed(0)
    device = xm.xla_device()
    train = Rings(160, 1)
    loader = DataLoader(train, batch_sampler=CropSampler(len(train), batch))
    valid = DataLoader(Rings(64, 2), batch_size=16)
    model = TinySeg().to(device)
    average = WeightAverage(model, 0.95)
    opt = torch.optim.SGD(model.parameters(), lr=0.3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, mode="max", factor=0.5, patience=1)
    losses, step = torch.zeros((), device=device), 0
    xm.mark_step()
    for epoch in range(epochs):
        for image, mask in loader:
            loss = objective(model(image.to(device)), mask.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
            average.update(model)
            losses += loss.detach()
            xm.mark_step()
            step += 1
            if step % log_every == 0:
                print(f"step {step}: loss {losses.item() / log_every:.3f}")
                losses = torch.zeros((), device=device)
                xm.mark_step()
        if epoch % 5 == 4:
            score = validate(average.model, valid, device)
            plateau.step(score)
            print(f"epoch {epoch}: iou {score:.3f} lr {opt.param_groups[0]['lr']:.3f}")
    with tempfile.TemporaryDirectory() as folder:
        xm.save({"model": average.model.state_dict(), "step": step}, os.path.join(folder, "last.pt"))


if __name__ == "__main__":
    main()
