"""Class-conditional diffusion transformer (diffusers DiT) for motifs of marquetry."""
import argparse
import math
import time

import torch
from diffusers import DDIMScheduler, DiTTransformer2DModel
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

MOTIFS = 6
SIDE = 12


class Panels(IterableDataset):
    def __init__(self, count: int, seed: int):
        self.count, self.seed = count, seed

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed)
        axis = torch.linspace(-1, 1, SIDE)
        ys, xs = torch.meshgrid(axis, axis, indexing="ij")
        radius, angle = torch.sqrt(xs**2 + ys**2), torch.atan2(ys, xs)
        for _ in range(self.count):
            motif = int(torch.randint(0, MOTIFS, (1,), generator=g))
            turn, scale = torch.rand(2, generator=g).tolist()
            petals = torch.cos((motif + 2) * (angle + turn * math.pi))
            veneer = torch.stack([petals, torch.cos(radius * 6 * (0.5 + scale)), petals * radius])
            yield veneer.clamp(-1, 1), motif


def build_network(layers: int) -> DiTTransformer2DModel:
    return DiTTransformer2DModel(
        num_attention_heads=4, attention_head_dim=8, in_channels=3, out_channels=3, num_layers=layers,
        sample_size=SIDE, patch_size=2, norm_num_groups=1, num_embeds_ada_norm=MOTIFS,
    )


class Ema:
    def __init__(self, module: nn.Module, decay: float):
        self.decay = decay
        self.shadow = [p.detach().clone() for p in module.parameters()]

    @torch.no_grad()
    def update(self, module):
        torch._foreach_lerp_(self.shadow, list(module.parameters()), 1 - self.decay)


class Trainer:
    def __init__(self, layers: int, lr: float, steps: int):
        self.network = build_network(layers)
        for block in self.network.transformer_blocks:
            block.compile()
        self.schedule = DDIMScheduler(num_train_timesteps=200)
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=lr)
        self.lr = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=lr, total_steps=steps)
        self.ema = Ema(self.network, 0.99)

    def step(self, veneer, motif):
        t = torch.randint(0, self.schedule.config.num_train_timesteps, (len(veneer),))
        noise = torch.randn_like(veneer)
        noisy = self.schedule.add_noise(veneer, noise, t)
        guess = self.network(noisy, timestep=t, class_labels=motif).sample
        loss = nn.functional.mse_loss(guess, noise)
        loss.backward()
        self.optimizer.step()
        self.lr.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.ema.update(self.network)
        return loss.detach()

    @torch.no_grad()
    def sample(self, motif: torch.Tensor, steps: int) -> torch.Tensor:
        self.network.eval()
        self.schedule.set_timesteps(steps)
        veneer = torch.randn(len(motif), 3, SIDE, SIDE)
        for t in self.schedule.timesteps:
            guess = self.network(veneer, timestep=t.expand(len(motif)), class_labels=motif).sample
            veneer = self.schedule.step(guess, t, veneer).prev_sample
        self.network.train()
        return veneer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--layers", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(21)

    trainer = Trainer(args.layers, lr=1e-3, steps=args.steps)
    begun = time.time()
    window = torch.zeros(())
    for number, (veneer, motif) in enumerate(DataLoader(Panels(args.steps * args.batch, 5), batch_size=args.batch), 1):
        window += trainer.step(veneer, motif)
        if number % 60 == 0:
            print(f"{number:4d} loss {window.item() / 60:.4f}")
            window.zero_()
    print(f"trained in {time.time() - begun:.1f} s")
    begun = time.time()
    veneer = trainer.sample(torch.arange(args.batch) % MOTIFS, steps=20)
    print(f"sampled {tuple(veneer.shape)} spread {veneer.std().item():.2f} in {time.time() - begun:.1f} s")


if __name__ == "__main__":
    main()
