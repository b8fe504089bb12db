"""Small DDPM of galaxy cut-outs with diffusers, trained and sampled on xla."""
import math
import time

import torch
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
from diffusers import DDIMScheduler, DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from diffusers.training_utils import EMAModel
from torch.utils.data import DataLoader, TensorDataset

SIZE = 16
EPOCHS = 2
BATCH = 16


def galaxies(count, generator):
    """Exponential discs of random inclination, position angle and scale, with noise."""
    axis = torch.linspace(-1, 1, SIZE)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    angle = torch.rand(count, 1, 1, generator=generator) * math.pi
    ratio = 0.3 + 0.7 * torch.rand(count, 1, 1, generator=generator)
    scale = 0.15 + 0.25 * torch.rand(count, 1, 1, generator=generator)
    u = x * angle.cos() + y * angle.sin()
    v = (-x * angle.sin() + y * angle.cos()) / ratio
    image = torch.exp(-torch.sqrt(u * u + v * v + 1e-4) / scale)
    image = image + 0.02 * torch.randn(image.shape, generator=generator)
    return image.mul(2).sub(1).clamp(-1, 1).unsqueeze(1)


def build_model():
    return UNet2DModel(
        sample_size=SIZE, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=4, attention_head_dim=8,
    )


def train_step(model, noise_scheduler, images, optimizer, lr_scheduler, ema):
    noise = torch.randn_like(images)
    steps = torch.randint(0, noise_scheduler.config.num_train_timesteps, (images.shape[0],), device=images.device)
    noisy = noise_scheduler.add_noise(images, noise, steps)
    loss = F.mse_loss(model(noisy, steps).sample, noise)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    lr_scheduler.step()
    optimizer.zero_grad()
    ema.step(model.parameters())
    return loss.detach()


@torch.no_grad()
def sample(model, scheduler, count, steps, device, seed):
    scheduler.set_timesteps(steps, device=device)
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 1, SIZE, SIZE, generator=generator).to(device)
    for t in scheduler.timesteps:
        noise_pred = model(images, t).sample
        images = scheduler.step(noise_pred, t, images).prev_sample
        torch_xla.sync()
    return images.clamp(-1, 1)


def radial_profile(images, bins=6):
    """Mean brightness in rings: what the samples are judged by."""
    axis = torch.linspace(-1, 1, SIZE)
    r = torch.sqrt(axis[:, None] ** 2 + axis[None, :] ** 2)
    index = (r / r.max() * bins).long().clamp(max=bins - 1).flatten()
    flat = images.flatten(1).mean(0)
    sums = torch.zeros(bins).index_add_(0, index, flat)
    return sums / torch.bincount(index, minlength=bins)


def main():
    torch.manual_seed(0)
    device = xm.xla_device()
    data = galaxies(320, torch.Generator().manual_seed(1))
    reference = radial_profile(data)
    loader = DataLoader(TensorDataset(data), batch_size=BATCH, shuffle=True, drop_last=True)

    model = build_model().to(device)
    noise_scheduler = DDPMScheduler(num_train_timesteps=200, beta_schedule="squaredcos_cap_v2")
    sampler = DDIMScheduler.from_config(noise_scheduler.config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    lr_scheduler = get_cosine_schedule_with_warmup(optimizer, 10, EPOCHS * len(loader))
    ema = EMAModel(model.parameters(), decay=0.995)

    for epoch in range(EPOCHS):
        model.train()
        began = time.perf_counter()
        total = torch.zeros((), device=device)
        for (images,) in loader:
            total += train_step(model, noise_scheduler, images.to(device), optimizer, lr_scheduler, ema)
            torch_xla.sync()
        mean = total.item() / len(loader)
        print(f"epoch {epoch}: loss {mean:.4f} in {time.perf_counter() - began:.1f} s")

        model.eval()
        ema.store(model.parameters())
        ema.copy_to(model.parameters())
        drawn = sample(model, sampler, 16, 25, device, seed=epoch).cpu()
        ema.restore(model.parameters())
        error = (radial_profile(drawn) - reference).abs().mean()
        print(f"epoch {epoch}: profile error {error:.4f}")


if __name__ == "__main__":
    main()
