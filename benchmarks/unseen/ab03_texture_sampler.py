"""Samples a sheet of textures from a small UNet with diffusers' Euler scheduler on XLA."""
import dataclasses
import time

import torch_xla
import torch
import torch_xla.core.xla_model as xm
from diffusers import EulerDiscreteScheduler, UNet2DModel


@dataclasses.dataclass
class SheetConfig:
    size: int = 16
    batch: int = 4
    sheets: int = 16
    steps: int = 20
    guidance: float = 2.0
    limit: float = 6.0
    classes: int = 3
    seed: int = 7


class Preview:
    """Keeps a thumbnail sequence of the first tile of the sheet."""

    def __init__(self, every=1):
        self.every = every
        self.frames = []

    def __call__(self, i, latents):
        if i % self.every == 0:
            tile = latents[0, 0].clamp(-1, 1).cpu().numpy()
            self.frames.append(((tile + 1) * 127.5).astype("uint8"))


class TextureSampler:
    def __init__(self, cfg):
        self.cfg = cfg
        self.device = torch.device("xla")
        torch.manual_seed(cfg.seed)
        self.unet = UNet2DModel(
            sample_size=cfg.size, in_channels=3, out_channels=3, layers_per_block=1,
            block_out_channels=(8,), norm_num_groups=4,
            down_block_types=("DownBlock2D",), add_attention=False,
            up_block_types=("UpBlock2D",),
            num_class_embeds=cfg.classes + 1).eval().to(self.device)
        self.scheduler = EulerDiscreteScheduler(num_train_timesteps=1000, beta_schedule="linear")

    def predict(self, latents, t, labels):
        empty = torch.full_like(labels, self.cfg.classes)
        both = torch.cat([latents, latents])
        out = self.unet(both, t, class_labels=torch.cat([labels, empty])).sample
        cond, free = out.chunk(2)
        guided = free + self.cfg.guidance * (cond - free)
        peak = guided.abs().amax()
        if peak > self.cfg.limit:
            guided = guided * (self.cfg.limit / peak)
        return guided

    @torch.no_grad()
    def sheet(self, labels, callback=None):
        cfg = self.cfg
        self.scheduler.set_timesteps(cfg.steps, device=self.device)
        shape = (cfg.batch, 3, cfg.size, cfg.size)
        latents = torch.randn(shape).to(self.device) * self.scheduler.init_noise_sigma
        for i, t in enumerate(self.scheduler.timesteps):
            scaled = self.scheduler.scale_model_input(latents, t)
            noise = self.predict(scaled, t, labels)
            latents = self.scheduler.step(noise, t, latents).prev_sample
            xm.mark_step()
            if callback is not None:
                callback(i, latents)
        return latents


def contrast(images):
    flat = images.flatten(1)
    return (flat.std(1) / (flat.abs().mean(1) + 1e-6)).tolist()


def main():
    cfg = SheetConfig()
    sampler = TextureSampler(cfg)
    preview = Preview()
    table = []
    start = time.time()
    for n in range(cfg.sheets):
        labels = (torch.arange(cfg.batch) + n) % cfg.classes
        images = sampler.sheet(labels.to(sampler.device), callback=preview)
        table.append(contrast(images.cpu()))
        print(f"sheet {n}: " + " ".join(f"{c:.2f}" for c in table[-1]))
    print(f"{cfg.sheets} sheets, {len(preview.frames)} frames, {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
