"""Clean-up of night-sky brightness profiles: diffusion with a UNet1D-style transformer from diffusers' blocks."""
import copy
import time
from dataclasses import dataclass

import torch
from diffusers import DDIMScheduler, DDPMScheduler
from diffusers.models.attention import BasicTransformerBlock
from diffusers.models.embeddings import TimestepEmbedding, Timesteps
from torch import nn


@dataclass
class Settings:
    points: int = 48
    width: int = 32
    blocks: int = 4
    batch: int = 32
    steps: int = 240
    sample_every: int = 120
    sample_batch: int = 64
    sample_steps: int = 20


class SkyDenoiser(nn.Module):
    def __init__(self, s: Settings):
        super().__init__()
        self.read = nn.Linear(1, s.width)
        self.place = nn.Parameter(torch.randn(1, s.points, s.width) * 0.02)
        self.wave = Timesteps(s.width, flip_sin_to_cos=True, downscale_freq_shift=0)
        self.time = TimestepEmbedding(s.width, s.width)
        self.blocks = nn.ModuleList(BasicTransformerBlock(s.width, 4, s.width // 4) for _ in range(s.blocks))
        self.write = nn.Sequential(nn.LayerNorm(s.width), nn.Linear(s.width, 1))

    def forward(self, profile, t):
        x = self.read(profile.unsqueeze(-1)) + self.place + self.time(self.wave(t)).unsqueeze(1)
        for block in self.blocks:
            x = block(x)
        return self.write(x).squeeze(-1)


def profiles(count, s, generator):
    """Brightness along the horizon: towns glow, the Milky Way crosses."""
    at = torch.linspace(0, 1, s.points)
    towns = torch.rand(count, 3, 1, generator=generator)
    power = torch.rand(count, 3, 1, generator=generator)
    glow = (power * torch.exp(-((at - towns) ** 2) / 0.01)).sum(1)
    return glow + 0.3 * torch.sin(3.1 * at + 6 * torch.rand(count, 1, generator=generator)) - 0.5


class Run:
    def __init__(self, s: Settings):
        self.s = s
        self.net = SkyDenoiser(s)
        for block in self.net.blocks:
            block.compile()
        self.ema = copy.deepcopy(self.net).requires_grad_(False).eval()
        self.noise = DDPMScheduler(num_train_timesteps=500)
        self.solver = DDIMScheduler(num_train_timesteps=500)
        self.generator = torch.Generator().manual_seed(8)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=2e-3)

    def loss(self):
        clean = profiles(self.s.batch, self.s, self.generator)
        t = torch.randint(0, 500, (self.s.batch,), generator=self.generator)
        noise = torch.randn(clean.shape, generator=self.generator)
        return nn.functional.mse_loss(self.net(self.noise.add_noise(clean, noise, t), t), noise)

    @torch.no_grad()
    def follow(self, decay=0.98):
        torch._foreach_lerp_(list(self.ema.parameters()), list(self.net.parameters()), 1 - decay)

    @torch.no_grad()
    def sample(self):
        self.solver.set_timesteps(self.s.sample_steps)
        x = torch.randn(self.s.sample_batch, self.s.points, generator=self.generator)
        for t in self.solver.timesteps:
            guess = self.ema(x, t.expand(self.s.sample_batch))
            x = self.solver.step(guess, t, x).prev_sample
        return x

    def fit(self):
        begun = time.time()
        for step in range(1, self.s.steps + 1):
            loss = self.loss()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.follow()
            if step % self.s.sample_every == 0:
                drawn = self.sample()
                print(
                    f"step {step} loss {loss.item():.3f} drawn mean {drawn.mean().item():+.2f} "
                    f"spread {drawn.std().item():.2f} after {time.time() - begun:.1f} s"
                )


def main():
    torch.manual_seed(8)
    Run(Settings()).fit()


if __name__ == "__main__":
    main()
