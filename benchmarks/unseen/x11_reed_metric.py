"""A metric for bassoon reeds: near each other if players reach for them in the same weather."""

import argparse
import functools
import logging
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

logger = logging.getLogger("reeds")


def cut_reeds(count, profiles, rng):
    """Thickness of the cane along two blades, and the humidity class in which the reed was chosen."""
    humidity = rng.integers(0, 6, size=count)
    along = np.linspace(0, 1, profiles)
    tip = 0.2 + 0.08 * humidity[:, None] + 0.05 * rng.normal(size=(count, 1))
    spine = 0.6 + 0.1 * np.cos(humidity)[:, None] + 0.05 * rng.normal(size=(count, 1))
    upper = tip + (spine - tip) * along**1.5 + 0.04 * rng.normal(size=(count, profiles))
    lower = upper + 0.05 * np.sin(6 * along + humidity[:, None]) + 0.03 * rng.normal(size=(count, profiles))
    return np.concatenate([upper, lower], axis=1).astype(np.float32), humidity


class BalancedSampler:
    """`classes` humidity classes with `each` reeds apiece, and for every anchor a positive and a negative."""

    def __init__(self, humidity, classes=4, each=8, seed=0):
        self.rng = np.random.default_rng(seed)
        self.members = {int(c): np.flatnonzero(humidity == c) for c in np.unique(humidity)}
        self.classes, self.each = classes, each

    def batch(self):
        chosen = self.rng.choice(list(self.members), self.classes, replace=False)
        rows = np.concatenate([self.rng.choice(self.members[int(c)], self.each, replace=False) for c in chosen])
        size = len(rows)
        anchors, positives, negatives = [], [], []
        for anchor in range(size):
            group = anchor // self.each
            mates = [i for i in range(group * self.each, (group + 1) * self.each) if i != anchor]
            others = [i for i in range(size) if i // self.each != group]
            anchors.append(anchor)
            positives.append(int(self.rng.choice(mates)))
            negatives.append(int(self.rng.choice(others)))
        return rows, (anchors, positives, negatives)


class ReedEncoder(nn.Module):
    def __init__(self, inputs, width=64, embedding=16):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(inputs, width), nn.Linear(width, width), nn.Linear(width, embedding)])
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms):
            x = F.gelu(norm(layer(x)))
        return F.normalize(self.layers[-1](x), dim=-1)


class TripletModel(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, reeds, triplets, criterion):
        z = self.encoder(reeds)
        anchors, positives, negatives = triplets
        return criterion(z[anchors], z[positives], z[negatives])


def hinge(anchor, positive, negative, margin=0.2, power=2):
    near = (anchor - positive).abs().pow(power).sum(-1)
    far = (anchor - negative).abs().pow(power).sum(-1)
    return F.relu(near - far + margin).mean()


def criterion_for(step, steps):
    """The margin widens while the embedding settles."""
    return functools.partial(hinge, margin=0.1 + 0.5 * min(1.0, step / (0.6 * steps)))


@torch.no_grad()
def neighbours_agree(encoder, reeds, humidity):
    encoder.eval()
    z = encoder(reeds)
    similarity = z @ z.t() - 2 * torch.eye(len(z))
    agree = humidity[similarity.argmax(1)] == humidity
    encoder.train()
    return agree.float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--profiles", type=int, default=24)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(9)
    rng = np.random.default_rng(9)
    profiles, humidity = cut_reeds(900, args.profiles, rng)
    held_out, held_out_humidity = cut_reeds(200, args.profiles, rng)
    reeds = torch.from_numpy(profiles)
    sampler = BalancedSampler(humidity)

    model = TripletModel(ReedEncoder(reeds.shape[1]))
    objective = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    began = time.perf_counter()
    for step in range(args.steps):
        rows, triplets = sampler.batch()
        loss = objective(reeds[rows], triplets, criterion_for(step, args.steps))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            logger.info("step %3d loss %.4f", step, loss.item())
    score = neighbours_agree(model.encoder, torch.from_numpy(held_out), torch.from_numpy(held_out_humidity))
    logger.info("neighbours agree %.3f after %.1f s", score, time.perf_counter() - began)


if __name__ == "__main__":
    main()
