"""Ages of trees from ring widths: FSDP2 (fully_shard) on two gloo ranks, one compiled block after the other."""
import os
import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

RINGS = 64
PATCH = 4
RANKS = 2


class StochasticDepth(nn.Module):
    """Leaves out the residual branch of a whole sample."""

    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        if not self.training or self.rate == 0.0:
            return x
        keep = torch.rand(x.shape[0], 1, 1, device=x.device) >= self.rate
        return x * keep / (1.0 - self.rate)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, name: str, softness: dict, drop: float):
        super().__init__()
        self.heads = heads
        self.name, self.softness = name, softness
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop = StochasticDepth(drop)

    def attend(self, x):
        b, n, w = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        q = q / self.softness[self.name]
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(b, n, w))

    def forward(self, x):
        x = x + self.drop(self.attend(self.norm1(x)))
        return x + self.drop(self.down(nn.functional.gelu(self.up(self.norm2(x)))))


class RingModel(nn.Module):
    def __init__(self, width: int = 48, depth: int = 12, drop: float = 0.1):
        super().__init__()
        self.patch = nn.Linear(PATCH, width)
        self.place = nn.Parameter(torch.randn(RINGS // PATCH, width) * 0.02)
        softness = {f"block{i}": float(i + 1) for i in range(depth)}
        self.blocks = nn.ModuleList(Block(width, 4, name, softness, drop) for name in softness)
        self.norm = nn.LayerNorm(width)
        self.age = nn.Linear(width, 1)

    def forward(self, rings):
        x = self.patch(rings.view(rings.shape[0], -1, PATCH)) + self.place
        for block in self.blocks:
            x = block(x)
        return self.age(self.norm(x).mean(1)).squeeze(-1)


def cores(count: int, generator: torch.Generator):
    age = torch.rand(count, generator=generator)
    year = torch.arange(RINGS) / RINGS
    growth = torch.exp(-year * (1 + 3 * age.unsqueeze(1)))
    climate = 0.2 * torch.sin(40 * year + 6 * torch.rand(count, 1, generator=generator))
    return growth + climate + 0.05 * torch.randn(count, RINGS, generator=generator), age


def shard(model: RingModel, mesh):
    for block in model.blocks:
        block.compile(backend="aot_eager")
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


@torch.no_grad()
def held_out_error(model, generator):
    model.eval()
    rings, age = cores(64, generator)
    error = (model(rings) - age).abs().mean()
    dist.all_reduce(error)
    model.train()
    return 300 * error.item() / RANKS


def train_rank():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(17)
    model = shard(RingModel(), init_device_mesh("cpu", (RANKS,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(100 + rank)
    begun = time.time()
    for step in range(1, 101):
        rings, age = cores(32, generator)
        loss = nn.functional.mse_loss(model(rings), age)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            years = held_out_error(model, generator)
            if rank == 0:
                print(f"step {step}: {years:.1f} years off after {time.time() - begun:.1f} s", flush=True)
    dist.destroy_process_group()


def main():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(RANKS))
    ranks = [
        subprocess.Popen([sys.executable, __file__], env=dict(common, RANK=str(r), LOCAL_RANK=str(r)))
        for r in range(RANKS)
    ]
    sys.exit(max(p.wait() for p in ranks))


if __name__ == "__main__":
    train_rank() if "RANK" in os.environ else main()
