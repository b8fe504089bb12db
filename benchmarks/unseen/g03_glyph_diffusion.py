"""DDPM over 16x16 glyphs with diffusers, sampled with DDIM at the end of every phase."""
import argparse

import torch
import torch.nn.functional as F
import torch_xla
from diffusers import DDIMScheduler, DDPMScheduler, UNet2DModel

SIZE = 16


def glyphs(n, gen):
    """Bars and boxes."""
    img = torch.full((n, 1, SIZE, SIZE), -1.0)
    kind = torch.randint(0, 3, (n,), generator=gen).tolist()
    pos = torch.randint(2, SIZE - 4, (n, 2), generator=gen).tolist()
    for i, (k, (a, b)) in enumerate(zip(kind, pos)):
        if k in (0, 2):
            img[i, 0, a:a + 2, :] = 1.0
        if k in (1, 2):
            img[i, 0, :, b:b + 2] = 1.0
    return img


def build_unet():
    return UNet2DModel(
        sample_size=SIZE, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16),
        norm_num_groups=4, down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"), add_attention=False)


class Sampler:
    def __init__(self, train_sched, steps, device):
        self.sched = DDIMScheduler.from_config(train_sched.config)
        self.sched.set_timesteps(steps)
        self.device = device

    @torch.no_grad()
    def __call__(self, unet, n):
        unet.eval()
        x = torch.randn(n, 1, SIZE, SIZE).to(self.device)
        for t in self.sched.timesteps:
            level = torch.full((n,), int(t), dtype=torch.long).to(self.device)
            eps = unet(x, level).sample
            x = self.sched.step(eps, t, x).prev_sample
        unet.train()
        return x.clamp(-1, 1)


class Phase:
    def __init__(self, unet, sched, data, device, lr):
        self.unet, self.sched, self.data, self.device = unet, sched, data, device
        self.opt = torch.optim.SGD(unet.parameters(), lr=lr)

    def run(self, steps, batch):
        total = torch.zeros((), device=self.device)
        for _ in range(steps):
            x0 = self.data[torch.randint(0, len(self.data), (batch,))]
            t = torch.randint(0, self.sched.config.num_train_timesteps, (batch,))
            noise = torch.randn_like(x0)
            xt = self.sched.add_noise(x0, noise, t)
            pred = self.unet(xt.to(self.device), t.to(self.device)).sample
            loss = F.mse_loss(pred, noise.to(self.device))
            loss.backward()
            self.opt.step()
            self.opt.zero_grad()
            total += loss.detach()
            torch_xla.sync()
        return total.item() / steps


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--phases", type=int, default=2)
    ap.add_argument("--steps", type=int, default=50)
    ap.add_argument("--ddim", type=int, default=5)
    args = ap.parse_args()
    torch.manual_seed(3)
    device = torch_xla.device()
    data = glyphs(600, torch.Generator().manual_seed(3))
    sched = DDPMScheduler(num_train_timesteps=200)
    unet = build_unet().to(device)
    sampler = Sampler(sched, args.ddim, device)
    phase = Phase(unet, sched, data, device, lr=0.02)
    for p in range(args.phases):
        loss = phase.run(args.steps, 16)
        img = sampler(unet, 4)
        ink = (img.cpu() > 0).float().mean().item()
        print(f"phase {p}: loss {loss:.3f} ink {ink:.3f}")


if __name__ == "__main__":
    main()
