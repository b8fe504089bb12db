"""Predicts soil moisture maps with a deep convolutional mixer; its blocks are compiled one by one to keep compilation short."""
import argparse
import logging

import torch
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("soil")


def make_fields(n, size, gen):
    """Rain, slope and clay content as inputs; moisture is a smoothed mixture of them."""
    x = F.avg_pool2d(torch.randn(n, 3, size, size, generator=gen), 3, stride=1, padding=1)
    y = x[:, :1] * x[:, 2:].sigmoid() - 0.5 * x[:, 1:2].relu()
    return x, F.avg_pool2d(y, 5, stride=1, padding=2)


class MixerBlock(nn.Module):
    def __init__(self, width, drop_path=0.0, layer_scale=0.1):
        super().__init__()
        self.spatial = nn.Conv2d(width, width, 5, padding=2, groups=width)
        self.norm = nn.GroupNorm(1, width)
        self.channel = nn.Sequential(nn.Conv2d(width, 2 * width, 1), nn.GELU(), nn.Conv2d(2 * width, width, 1))
        self.scale = nn.Parameter(layer_scale * torch.ones(width, 1, 1))
        self.drop_path = drop_path

    def forward(self, x):
        h = self.scale * self.channel(self.norm(self.spatial(x)))
        if self.training and self.drop_path > 0:
            keep = 1 - self.drop_path
            h = h * torch.empty(x.shape[0], 1, 1, 1, device=x.device).bernoulli_(keep) / keep
        return x + h


class SoilModel(nn.Module):
    def __init__(self, width=16, depth=12, drop_path=0.2):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        rates = torch.linspace(0, drop_path, depth).tolist()
        self.blocks = nn.ModuleList(MixerBlock(width, rate) for rate in rates)
        self.head = nn.Conv2d(width, 1, 1)

    def compile_blocks(self, **options):
        for block in self.blocks:
            block.compile(**options)
        return self

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@torch.no_grad()
def skill(model, x, y):
    """One minus the error against predicting the mean."""
    model.eval()
    error = F.mse_loss(model(x), y)
    model.train()
    return (1 - error / y.var()).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--size", type=int, default=24)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)

    model = SoilModel().compile_blocks(backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=args.steps)
    held_out = make_fields(args.batch_size, args.size, gen)
    for step in range(1, args.steps + 1):
        x, y = make_fields(args.batch_size, args.size, gen)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step % 12 == 0:
            log.info("step %d: loss %.4f, skill %.3f", step, loss.item(), skill(model, *held_out))


if __name__ == "__main__":
    main()
