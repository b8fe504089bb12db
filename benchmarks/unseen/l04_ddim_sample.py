"""Samples images with a small UNet and diffusers' DDIM scheduler on the XLA device, and measures their spread."""
import argparse
import time

import torch
import torch_xla
from diffusers import DDIMScheduler, UNet2DModel


def build(size):
    model = UNet2DModel(
        sample_size=size, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16),
        norm_num_groups=4, down_block_types=("DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D"),
        add_attention=False)
    return model.eval().requires_grad_(False)


class Sampler:
    def __init__(self, model, scheduler, device, threshold):
        self.model = model.to(device)
        self.scheduler = scheduler
        self.device = device
        self.threshold = threshold

    def __call__(self, count, size, steps, generator):
        self.scheduler.set_timesteps(steps)
        sample = torch.randn(count, 1, size, size, generator=generator).to(self.device)
        for t in self.scheduler.timesteps:
            noise = self.model(sample, t.to(self.device)).sample
            sample = self.scheduler.step(noise, t, sample).prev_sample
            if sample.abs().max() > self.threshold:
                sample = sample.clamp(-self.threshold, self.threshold)
            torch_xla.sync()
        return sample


def spread(images):
    flat = images.flatten(1)
    return torch.stack([flat.mean(), flat.std(), flat.amin(), flat.amax()]).tolist()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--count", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    scheduler = DDIMScheduler(num_train_timesteps=120, clip_sample=False)
    sampler = Sampler(build(args.size), scheduler, torch_xla.device(), threshold=4.0)
    generator = torch.Generator().manual_seed(11)
    for index in range(args.rounds):
        start = time.perf_counter()
        images = sampler(args.count, args.size, args.steps, generator).cpu()
        mean, std, low, high = spread(images)
        print(f"round {index}: mean {mean:.3f} std {std:.3f} from {low:.2f} to {high:.2f}, {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
