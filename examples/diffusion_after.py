"""Text to image with Stable Diffusion on the xla device, after the report's fixes: docs/case-study-diffusion.md.

    xlaprof run -o after.log examples/diffusion_after.py

The same pictures as examples/diffusion_before.py draws. Each change says which finding it answers.
"""

import argparse

import torch
import torch_xla
from diffusers import EulerDiscreteScheduler
from diffusion_model import pipeline
from tqdm import tqdm

PROMPTS = ["a cat", "a red house", "the sea at night"]


def watermark(image):
    """Hide a sign in the picture's spectrum: on the device (transfer: "do this work on the device")."""
    spectrum = torch.fft.rfft2(image)
    sign = torch.ones(spectrum.shape[-2:])
    sign[5:9, 5:9] = 1.02
    return torch.fft.irfft2(spectrum * sign.to(image.device))


def draw(pipe, prompt, steps):
    """One picture, on the device."""
    device = pipe.device
    wanted, unwanted = pipe.encode_prompt(prompt, device, 1, do_classifier_free_guidance=True)
    embeddings = torch.cat([unwanted, wanted])
    pipe.scheduler.set_timesteps(steps, device="cpu")  # recompile: a constant of the graph changed from step to step
    pipe.scheduler.set_begin_index(0)  # transfer: "count the position in Python", as diffusers' scheduler can today
    latents = torch.randn(1, 4, 16, 16).to(device) * pipe.scheduler.init_noise_sigma
    torch_xla.sync()  # so that the first step's graph is that of all steps
    for t in tqdm(pipe.scheduler.timesteps, desc=prompt):
        both = pipe.scheduler.scale_model_input(torch.cat([latents] * 2), t)
        moment = t.reshape(1).to(device)  # recompile: "a 1-element tensor on the device"; the last one is 0
        noise = pipe.unet(both, moment, encoder_hidden_states=embeddings).sample
        without, towards = noise.chunk(2)
        latents = pipe.scheduler.step(without + 7.5 * (towards - without), t, latents).prev_sample
        torch_xla.sync()  # missing_barrier: "at the end of every turn of the loop"
    image = pipe.vae.decode(latents / pipe.vae.config.scaling_factor).sample
    return watermark(image).clamp(-1, 1)


def main(steps):
    torch.manual_seed(0)
    pipe = pipeline(EulerDiscreteScheduler(steps_offset=1)).to(torch_xla.device())
    pictures = []
    with torch.no_grad():
        for prompt in PROMPTS:
            pictures.append(draw(pipe, prompt, steps))
            torch_xla.sync()
    drawn = torch.stack(pictures).cpu()  # transfer: "hand the tensor over once, after the loop"
    for prompt, picture in zip(PROMPTS, drawn, strict=True):
        print(f"{prompt}: {tuple(picture.shape)}, mean {picture.mean():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    main(parser.parse_args().steps)
