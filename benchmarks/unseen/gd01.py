"""Verification of printed-part stamps: a small ViT with an additive-angular-margin head, compiled.

Fifteen stamp designs are drawn at random angles and shades; the network learns an embedding in
which stamps of one design lie together. The margin is warmed up over the epochs, as usual.
"""
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import ViTConfig, ViTModel

SIDE, DESIGNS, BATCH = 24, 15, 48
STEPS_PER_EPOCH = 16


class StampSource:
    """Draws stamps: each design is a fixed set of strokes in polar coordinates."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        fixed = torch.Generator().manual_seed(99)
        self.frequency = torch.randint(1, 6, (DESIGNS, 3), generator=fixed).float()
        self.phase = 2 * math.pi * torch.rand(DESIGNS, 3, generator=fixed)
        axis = torch.linspace(-1, 1, SIDE)
        y, x = torch.meshgrid(axis, axis, indexing="ij")
        self.radius, self.angle = torch.sqrt(x * x + y * y), torch.atan2(y, x)

    def draw(self, count):
        g = self.generator
        label = torch.randint(0, DESIGNS, (count,), generator=g)
        turn = 0.25 * torch.randn(count, 1, 1, generator=g)
        angle = self.angle + turn
        image = torch.zeros(count, SIDE, SIDE)
        for stroke in range(3):
            f = self.frequency[label, stroke][:, None, None]
            p = self.phase[label, stroke][:, None, None]
            image += torch.cos(f * angle + p + (stroke + 1) * 4 * self.radius)
        shade = 0.7 + 0.6 * torch.rand(count, 1, 1, generator=g)
        image = image * shade + 0.5 * torch.randn(count, SIDE, SIDE, generator=g)
        return image[:, None], label


class MarginNet(nn.Module):
    def __init__(self, width=48, embedding=32, scale=16.0):
        super().__init__()
        config = ViTConfig(
            hidden_size=width, num_hidden_layers=1, num_attention_heads=4, intermediate_size=2 * width,
            image_size=SIDE, patch_size=6, num_channels=1,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        self.backbone = ViTModel(config, add_pooling_layer=False)
        self.project = nn.Linear(width, embedding)
        self.centres = nn.Parameter(torch.randn(DESIGNS, embedding))
        self.scale = scale
        self.margin = 0.0

    def embed(self, image):
        hidden = self.backbone(pixel_values=image).last_hidden_state
        return F.normalize(self.project(hidden.mean(1)), dim=-1)

    def forward(self, image, label):
        cosine = self.embed(image) @ F.normalize(self.centres, dim=-1).T
        cosine = cosine.clamp(-1 + 1e-5, 1 - 1e-5)
        with_margin = torch.cos(torch.acos(cosine) + self.margin)
        chosen = F.one_hot(label, DESIGNS).bool()
        logits = self.scale * torch.where(chosen, with_margin, cosine)
        return F.cross_entropy(logits, label)


class MarginWarmup:
    """Raises the margin from nothing to its full value, an epoch at a time."""

    def __init__(self, model, full, epochs):
        self.model, self.full, self.epochs = model, full, epochs

    def on_epoch(self, epoch):
        self.model.margin = self.full * min(1.0, epoch / self.epochs)


@torch.no_grad()
def verification_rate(model, source, pairs=300):
    """Share of pairs judged rightly at the best of some thresholds."""
    model.eval()
    left, left_label = source.draw(pairs)
    right, right_label = source.draw(pairs)
    right[::2], right_label[::2] = source_like(source, left_label[::2], right[::2], right_label[::2])
    similarity = (model.embed(left) * model.embed(right)).sum(-1)
    same = left_label == right_label
    rates = [((similarity > t) == same).float().mean() for t in torch.linspace(-0.2, 0.9, 23)]
    model.train()
    return torch.stack(rates).max().item()


def source_like(source, wanted, images, labels):
    """Replaces images by ones of the wanted designs, drawn until each design has been seen."""
    pool, pool_label = source.draw(40 * DESIGNS)
    for row, design in enumerate(wanted.tolist()):
        found = (pool_label == design).nonzero()[:, 0]
        pick = found[row % len(found)]
        images[row], labels[row] = pool[pick], pool_label[pick]
    return images, labels


def main(epochs=4):
    torch.manual_seed(5)
    train, check = StampSource(1), StampSource(2)
    model = MarginNet()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    warmup = MarginWarmup(model, full=0.3, epochs=epochs - 1)
    for epoch in range(epochs):
        began, running = time.perf_counter(), 0.0
        warmup.on_epoch(epoch)
        for _ in range(STEPS_PER_EPOCH):
            image, label = train.draw(BATCH)
            loss = compiled(image, label)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            running += loss.item()
        rate = verification_rate(model, check)
        print(f"epoch {epoch} margin {model.margin:.2f} loss {running / STEPS_PER_EPOCH:.3f} "
              f"pairs right {rate:.3f} ({time.perf_counter() - began:.1f} s)")


if __name__ == "__main__":
    main()
