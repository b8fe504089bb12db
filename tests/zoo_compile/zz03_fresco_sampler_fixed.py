"""Fills in lost patches of frescoes with a small pixel diffusion model (diffusers)."""
import math
import time

import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, EulerDiscreteScheduler, UNet2DModel

SIZE = 16
PALETTE = torch.tensor([[0.72, 0.33, 0.22], [0.86, 0.75, 0.52], [0.26, 0.37, 0.48], [0.93, 0.90, 0.82]])


def painted_patches(count: int, generator: torch.Generator) -> torch.Tensor:
    """Bands of plaster colours that cross a patch at an angle, with faded edges."""
    ys, xs = torch.meshgrid(torch.linspace(-1, 1, SIZE), torch.linspace(-1, 1, SIZE), indexing="ij")
    angle = torch.rand(count, 1, 1, generator=generator) * math.pi
    phase = torch.rand(count, 1, 1, generator=generator) * 2
    band = (torch.cos(angle) * xs + torch.sin(angle) * ys + phase) * 2.0
    low = band.floor().long().remainder(4)
    blend = (band - band.floor()).unsqueeze(-1)
    colours = PALETTE[low] * (1 - blend) + PALETTE[(low + 1) % 4] * blend
    return colours.permute(0, 3, 1, 2).mul(2).sub(1).contiguous()


class FrescoRestorer:
    def __init__(self, steps_train: int = 1000):
        self.unet = UNet2DModel(
            sample_size=SIZE, in_channels=7, out_channels=3, layers_per_block=1,
            block_out_channels=(16, 32), norm_num_groups=8,
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=8,
        )
        self.noise = DDPMScheduler(num_train_timesteps=steps_train)
        self.solver = EulerDiscreteScheduler(num_train_timesteps=steps_train)
        self.denoise = torch.compile(self.unet, backend="aot_eager")
        self.advance = self.solver.step

    @staticmethod
    def lose(images, generator):
        """A random rectangle of every patch is lost."""
        mask = torch.ones(images.shape[0], 1, SIZE, SIZE)
        corners = torch.randint(2, SIZE // 2, (images.shape[0], 2), generator=generator)
        for row, (top, left) in zip(mask, corners.tolist()):
            row[:, top : top + 7, left : left + 6] = 0
        return mask

    def loss(self, images, mask, generator):
        t = torch.randint(0, self.noise.config.num_train_timesteps, (images.shape[0],), generator=generator)
        eps = torch.randn(images.shape, generator=generator)
        noisy = self.noise.add_noise(images, eps, t)
        guess = self.denoise(torch.cat([noisy, images * mask, mask], dim=1), t).sample
        return F.mse_loss(guess, eps)

    @torch.no_grad()
    def restore(self, images, mask, steps: int, generator):
        self.solver.set_timesteps(steps)
        sample = torch.randn(images.shape, generator=generator) * self.solver.init_noise_sigma
        context = torch.cat([images * mask, mask], dim=1)
        for t in self.solver.timesteps:
            scaled = self.solver.scale_model_input(sample, t)
            guess = self.denoise(torch.cat([scaled, context], dim=1), t).sample
            sample = self.advance(guess, t, sample).prev_sample
        return images * mask + sample.clamp(-1, 1) * (1 - mask)


def train(restorer, steps: int, batch: int, generator):
    optimizer = torch.optim.AdamW(restorer.unet.parameters(), lr=2e-3)
    restorer.unet.train()
    running = None
    for step in range(1, steps + 1):
        images = painted_patches(batch, generator)
        loss = restorer.loss(images, restorer.lose(images, generator), generator)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(restorer.unet.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        running = loss.detach() if running is None else running.lerp(loss.detach(), 0.05)
        if step % 50 == 0:
            print(f"step {step:4d} loss {running.item():.4f}")


def evaluate(restorer, rounds: int, batch: int, generator):
    restorer.unet.eval()
    errors = []
    for _ in range(rounds):
        images = painted_patches(batch, generator)
        mask = restorer.lose(images, generator)
        restored = restorer.restore(images, mask, steps=20, generator=generator)
        lost = (1 - mask).expand_as(images)
        errors.append(((restored - images).abs() * lost).sum() / lost.sum())
    return torch.stack(errors).mean()


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(4)
    restorer = FrescoRestorer()
    begun = time.time()
    train(restorer, steps=150, batch=16, generator=generator)
    print(f"trained in {time.time() - begun:.1f} s")
    begun = time.time()
    error = evaluate(restorer, rounds=6, batch=16, generator=generator)
    print(f"mean error of the lost plaster {error:.3f}, {time.time() - begun:.1f} s")


if __name__ == "__main__":
    main()
