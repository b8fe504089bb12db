"""A diffusion model of opal colour patches (16 x 16), with previews from averaged weights."""
import copy
import logging
import math
import time
from pathlib import Path
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import DDIMScheduler, DDPMScheduler, UNet2DModel
from diffusers.training_utils import EMAModel
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("opal")

SIZE = 16


class Opals(Dataset):
    """Cells of a random Voronoi diagram, each with a hue of its own."""

    def __init__(self, count=256, seed=0):
        rng = np.random.default_rng(seed)
        grid = np.stack(np.meshgrid(np.arange(SIZE), np.arange(SIZE)), -1)
        self.patches = np.empty((count, 3, SIZE, SIZE), dtype=np.float32)
        for k in range(count):
            centres = rng.uniform(0, SIZE, (5, 2))
            colours = rng.uniform(-1, 1, (5, 3))
            nearest = ((grid[:, :, None] - centres) ** 2).sum(-1).argmin(-1)
            self.patches[k] = colours[nearest].transpose(2, 0, 1)

    def __len__(self):
        return len(self.patches)

    def __getitem__(self, k):
        return torch.from_numpy(self.patches[k])


def build_unet():
    return UNet2DModel(
        sample_size=SIZE,
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
        attention_head_dim=8,
    )


class Previewer:
    """Draws a few patches with the averaged weights and stores them."""

    def __init__(self, folder, betas, steps=6, count=4):
        self.folder = Path(folder)
        self.scheduler = DDIMScheduler(num_train_timesteps=200, beta_schedule=betas)
        self.scheduler.set_timesteps(steps)
        self.start = torch.randn(count, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(8))

    @torch.no_grad()
    def __call__(self, unet, ema, step):
        averaged = copy.deepcopy(unet)
        ema.copy_to(averaged.parameters())
        averaged.eval()
        denoise = torch.compile(averaged, backend="aot_eager")
        x = self.start.clone()
        for t in self.scheduler.timesteps:
            x = self.scheduler.step(denoise(x, t).sample, t, x).prev_sample
        np.save(self.folder / f"preview-{step:04d}.npy", x.clamp(-1, 1).numpy())
        return x.std().item()


def train(folder, epochs=2, batch=16):
    unet = build_unet()
    betas = "squaredcos_cap_v2"
    noise_scheduler = DDPMScheduler(num_train_timesteps=200, beta_schedule=betas)
    forward = torch.compile(unet, backend="aot_eager")
    optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-3, weight_decay=1e-4)
    ema = EMAModel(unet.parameters(), decay=0.99, use_ema_warmup=True)
    preview = Previewer(folder, betas)
    loader = DataLoader(Opals(), batch_size=batch, shuffle=True, drop_last=True)
    step, began = 0, time.time()
    running = torch.zeros(())
    for epoch in range(epochs):
        running.zero_()
        for clean in loader:
            noise = torch.randn_like(clean)
            t = torch.randint(0, 200, (len(clean),))
            noisy = noise_scheduler.add_noise(clean, noise, t)
            loss = F.mse_loss(forward(noisy, t).sample, noise)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
            optimizer.step()
            ema.step(unet.parameters())
            running += loss.detach()
            step += 1
            if step % 8 == 0:
                spread = preview(unet, ema, step)
                log.info("step %d: preview spread %.3f", step, spread)
        mean = running.item() / len(loader)
        log.info("epoch %d: loss %.4f after %.1f s", epoch, mean, time.time() - began)
    return mean


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        loss = train(folder)
        stored = sorted(Path(folder).glob("preview-*.npy"))
        log.info("%d previews stored", len(stored))
    if not math.isfinite(loss):
        raise SystemExit("diverged")


if __name__ == "__main__":
    main()
