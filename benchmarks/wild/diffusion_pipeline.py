"""Draw images with a diffusers pipeline: a UNet of random weights, several sizes of batches, images as arrays."""

import torch
from _session import compiled, device, finish
from diffusers import DDIMPipeline, DDIMScheduler, UNet2DModel

torch.manual_seed(0)
unet = UNet2DModel(
    sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    attention_head_dim=4,
)  # fmt: skip
pipe = DDIMPipeline(unet=unet, scheduler=DDIMScheduler(num_train_timesteps=100)).to(device)
pipe.set_progress_bar_config(disable=True)
pipe.unet.forward = compiled(pipe.unet.forward)
means = []
for seed in range(3):
    images = pipe(
        batch_size=2, generator=torch.Generator().manual_seed(seed), num_inference_steps=8, output_type="np"
    ).images
    means += [float(image.mean()) for image in images]
finish(means)
