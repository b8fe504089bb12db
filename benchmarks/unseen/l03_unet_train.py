"""Trains a small unconditional diffusion model (diffusers' UNet2DModel) on synthetic blobs, on the XLA device."""
import argparse
import logging

import torch
import torch_xla
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("blobs")


class Blobs(Dataset):
    def __init__(self, count, size, seed):
        generator = torch.Generator().manual_seed(seed)
        grid = torch.linspace(-1, 1, size)
        center = torch.rand(count, 2, generator=generator) - 0.5
        dx = (grid[None, None, :] - center[:, :1, None]) ** 2
        dy = (grid[None, :, None] - center[:, 1:, None]) ** 2
        self.images = (torch.exp(-8 * (dx + dy)) * 2 - 1)[:, None]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index]


class Average:
    """Exponential moving average of a value, with the largest seen."""

    def __init__(self, decay=0.9):
        self.decay = decay
        self.value = None
        self.largest = 0.0

    def update(self, value):
        self.value = value if self.value is None else self.decay * self.value + (1 - self.decay) * value
        self.largest = max(self.largest, value)


def build(size):
    return UNet2DModel(
        sample_size=size, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16),
        norm_num_groups=4, down_block_types=("DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D"),
        add_attention=False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--batch", type=int, default=8)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)
    device = torch_xla.device()
    model = build(args.size).to(device)
    noise_scheduler = DDPMScheduler(num_train_timesteps=100)
    loader = DataLoader(Blobs(64, args.size, 1), args.batch, shuffle=True, drop_last=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = get_cosine_schedule_with_warmup(optimizer, 5, args.epochs * len(loader))
    average = Average()
    step = 0
    for epoch in range(args.epochs):
        for images in loader:
            noise = torch.randn(images.shape)
            timesteps = torch.randint(0, noise_scheduler.config.num_train_timesteps, (len(images),))
            noisy = noise_scheduler.add_noise(images, noise, timesteps)
            prediction = model(noisy.to(device), timesteps.to(device)).sample
            loss = torch.nn.functional.mse_loss(prediction, noise.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            torch_xla.sync()
            schedule.step()
            average.update(loss.item())
            step += 1
        log.info("epoch %d step %d average %.4f largest %.4f lr %.5f", epoch, step, average.value, average.largest,
                 schedule.get_last_lr()[0])


if __name__ == "__main__":
    main()
