"""Programs that train a diffusion, and sample from it."""

from __future__ import annotations

from collections.abc import Callable

import torch

import xlaprof.runtime as xr

DEVICE = "xla"


def samples(*, own: bool) -> Callable[[], object]:
    """One scheduler adds noise in training and takes it away in sampling, or sampling has its own."""

    def program() -> list[float]:
        from diffusers import DDPMScheduler

        scheduler = DDPMScheduler(num_train_timesteps=16)
        model = torch.nn.Linear(4, 4).to(DEVICE)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for turn in range(12):
            x, noise = torch.randn(2, 4).to(DEVICE), torch.randn(2, 4).to(DEVICE)
            noisy = scheduler.add_noise(x, noise, torch.tensor([turn, 12 - turn]).to(DEVICE))
            (model(noisy) - noise).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            xr.sync()
        sampler = DDPMScheduler.from_config(scheduler.config) if own else scheduler
        sampler.set_timesteps(8)
        sample = torch.randn(2, 4).to(DEVICE)
        with torch.no_grad():
            for t in sampler.timesteps.tolist():
                sample = sampler.step(model(sample), t, sample).prev_sample
                xr.sync()
        return sample.tolist()

    return program
