"""Train a latent diffusion model as diffusers' examples do: accelerate, a frozen VAE, noise, an EMA, a step's log."""

import torch
from _session import BACKEND, IS_XLA, finish, sync
from accelerate import Accelerator
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DModel
from diffusers.optimization import get_scheduler
from diffusers.training_utils import EMAModel
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accelerator = Accelerator(cpu=not IS_XLA, gradient_accumulation_steps=1, dynamo_backend=BACKEND or None)
vae = AutoencoderKL(block_out_channels=(8,), norm_num_groups=4, latent_channels=2, sample_size=16).eval()
vae.requires_grad_(False)
unet = UNet2DModel(
    sample_size=16, in_channels=2, out_channels=2, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
    down_block_types=("DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D"), add_attention=False,
)  # fmt: skip
scheduler = DDPMScheduler(num_train_timesteps=100)
optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(torch.rand(62, 3, 16, 16) * 2 - 1), batch_size=4)
schedule = get_scheduler("cosine", optimizer, num_warmup_steps=2, num_training_steps=16)
unet, optimizer, loader, schedule = accelerator.prepare(unet, optimizer, loader, schedule)
vae.to(accelerator.device)
ema = EMAModel(unet.parameters())
losses = []
for step, (images,) in enumerate(loader):
    with accelerator.accumulate(unet):
        latents = vae.encode(images).latent_dist.mean * vae.config.scaling_factor
        noise = torch.randn(latents.shape).to(latents.device)
        timesteps = torch.randint(0, 100, (len(latents),)).to(latents.device)
        noisy = scheduler.add_noise(latents, noise, timesteps)
        loss = F.mse_loss(unet(noisy, timesteps).sample, noise)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(unet.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    if accelerator.sync_gradients:
        ema.step(unet.parameters())
    sync()
    losses.append(accelerator.gather(loss.detach()).mean().item())
    accelerator.log({"loss": losses[-1], "lr": schedule.get_last_lr()[0]}, step=step)
finish(losses)
