import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from diffusers import DDIMScheduler, DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from diffusers.training_utils import EMAModel
from torch.utils.data import DataLoader, Dataset

SIZE, KINDS, FREE = 16, 4, 4


class Glyphs(Dataset):
    """Crosses, bars, boxes and dots on a small canvas."""

    def __init__(self, n, seed=0):
        rng = random.Random(seed)
        self.items = [(self.draw(i % KINDS, rng), i % KINDS) for i in range(n)]

    @staticmethod
    def draw(kind, rng):
        img = torch.full((1, SIZE, SIZE), -1.0)
        y, x = rng.randrange(4, SIZE - 4), rng.randrange(4, SIZE - 4)
        if kind in (0, 1):
            img[0, y - 3:y + 4, x] = 1.0
        if kind == 0:
            img[0, y, x - 3:x + 4] = 1.0
        if kind == 2:
            img[0, y - 3:y + 4, x - 3:x + 4] = 1.0
            img[0, y - 2:y + 3, x - 2:x + 3] = -1.0
        if kind == 3:
            img[0, y - 1:y + 2, x - 1:x + 2] = 1.0
        return img

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class Sampler:
    """Classifier free guidance over a DDIM schedule; both halves go through one call."""

    def __init__(self, scheduler_config, steps, guidance):
        self.scheduler = DDIMScheduler.from_config(scheduler_config)
        self.steps, self.guidance = steps, guidance

    @torch.no_grad()
    def __call__(self, net, kinds, gen):
        x = torch.randn(len(kinds), 1, SIZE, SIZE, generator=gen)
        labels = torch.cat([kinds, torch.full_like(kinds, FREE)])
        self.scheduler.set_timesteps(self.steps)
        for t in self.scheduler.timesteps:
            eps = net(x.repeat(2, 1, 1, 1), t.expand(2 * len(kinds)), labels).sample
            wanted, free = eps.chunk(2)
            x = self.scheduler.step(free + self.guidance * (wanted - free), t, x, eta=0.0).prev_sample
        return x.clamp(-1, 1)


def build():
    return UNet2DModel(sample_size=SIZE, in_channels=1, out_channels=1, layers_per_block=1,
                       block_out_channels=(8, 16), norm_num_groups=4, num_class_embeds=KINDS + 1,
                       down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                       up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=8)


def ink(images, kinds):
    share = (images > 0).float().flatten(1).mean(1)
    return {int(k): round(share[kinds == k].mean().item(), 3) for k in kinds.unique()}


def main(epochs=3, batch=16, drop_label=0.1, log_every=20):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(4)
    loader = DataLoader(Glyphs(960), batch_size=batch, shuffle=True, drop_last=True,
                        generator=torch.Generator().manual_seed(2))
    unet = build()
    net = torch.compile(unet, backend="aot_eager", dynamic=False)
    noiser = DDPMScheduler(num_train_timesteps=200, beta_schedule="squaredcos_cap_v2")
    sampler = Sampler(noiser.config, steps=10, guidance=1.5)
    opt = torch.optim.AdamW(unet.parameters(), lr=2e-3)
    lr = get_cosine_schedule_with_warmup(opt, 30, epochs * len(loader))
    ema = EMAModel(unet.parameters(), decay=0.98)
    kinds = torch.arange(8) % KINDS
    step, began, running = 0, time.time(), torch.zeros(())
    for epoch in range(epochs):
        unet.train()
        for clean, label in loader:
            noise = torch.randn_like(clean)
            t = torch.randint(0, noiser.config.num_train_timesteps, (len(clean),))
            label = torch.where(torch.rand(len(label)) < drop_label, FREE, label)
            eps = net(noiser.add_noise(clean, noise, t), t, label).sample
            loss = F.mse_loss(eps, noise)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
            opt.step()
            lr.step()
            ema.step(unet.parameters())
            running += loss.detach()
            step += 1
            if step % log_every == 0:
                print(f"step {step} mse {running.item() / log_every:.4f} lr {lr.get_last_lr()[0]:.1e} "
                      f"{time.time() - began:.1f}s", flush=True)
                running.zero_()
        unet.eval()
        ema.store(unet.parameters())
        ema.copy_to(unet.parameters())
        images = sampler(net, kinds, gen)
        Path("/tmp/bb13_glyphs").mkdir(exist_ok=True)
        torch.save({"images": images, "ema": ema.state_dict()}, f"/tmp/bb13_glyphs/{epoch}.pt")
        ema.restore(unet.parameters())
        print(f"epoch {epoch} ink {ink(images, kinds)}")


if __name__ == "__main__":
    main()
