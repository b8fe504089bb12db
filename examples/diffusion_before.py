"""Text to image with Stable Diffusion on the xla device, first version: docs/case-study-diffusion.md.

    xlaprof run -o before.log examples/diffusion_before.py

It is the loop of diffusers' StableDiffusionPipeline written out, with the Euler scheduler as diffusers had it when
PyTorch/XLA's documents profiled it, which searches its table for the time step on the device.
examples/diffusion_after.py has the fixes.
"""

import argparse

import numpy as np
import torch
import torch_xla
from diffusers import EulerDiscreteScheduler
from diffusion_model import pipeline
from tqdm import tqdm

PROMPTS = ["a cat", "a red house", "the sea at night"]


class LookedUpEuler(EulerDiscreteScheduler):
    """Euler's method; the step's number is looked up in the schedule, twice a step."""

    def scale_model_input(self, sample, timestep):
        number = (self.timesteps == timestep).nonzero().item()
        return sample / (self.sigmas[number] ** 2 + 1) ** 0.5

    def step(self, noise, timestep, sample):
        number = (self.timesteps == timestep).nonzero().item()
        return sample + noise * (self.sigmas[number + 1] - self.sigmas[number])


def watermark(image):
    """Hide a sign in the picture's spectrum."""
    spectrum = np.fft.rfft2(image.cpu().numpy())
    spectrum[..., 5:9, 5:9] *= 1.02
    return torch.from_numpy(np.fft.irfft2(spectrum).astype(np.float32)).to(image.device)


def draw(pipe, prompt, steps):
    """One picture."""
    device = pipe.device
    wanted, unwanted = pipe.encode_prompt(prompt, device, 1, do_classifier_free_guidance=True)
    embeddings = torch.cat([unwanted, wanted])
    pipe.scheduler.set_timesteps(steps, device=device)
    latents = torch.randn(1, 4, 16, 16).to(device) * pipe.scheduler.init_noise_sigma
    for t in tqdm(pipe.scheduler.timesteps, desc=prompt):
        both = pipe.scheduler.scale_model_input(torch.cat([latents] * 2), t)
        noise = pipe.unet(both, t, encoder_hidden_states=embeddings).sample
        without, towards = noise.chunk(2)
        latents = pipe.scheduler.step(without + 7.5 * (towards - without), t, latents)
    image = pipe.vae.decode(latents / pipe.vae.config.scaling_factor).sample
    return watermark(image).clamp(-1, 1).cpu()


def main(steps):
    torch.manual_seed(0)
    pipe = pipeline(LookedUpEuler(steps_offset=1)).to(torch_xla.device())
    with torch.no_grad():
        for prompt in PROMPTS:
            picture = draw(pipe, prompt, steps)
            print(f"{prompt}: {tuple(picture.shape)}, mean {picture.mean():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    main(parser.parse_args().steps)
