"""Volcanic ash grains under the microscope: ConvNeXt V2 (transformers) in bf16 autocast, with activation statistics."""
import argparse
import time

import torch
import torch.nn.functional as F
from transformers import ConvNextV2Config, ConvNextV2ForImageClassification

KINDS = ("vesicular", "blocky", "fluidal", "platy")
EDGE = 32


def grains(count, generator):
    kind = torch.randint(0, len(KINDS), (count,), generator=generator)
    axis = torch.linspace(-1, 1, EDGE)
    ys, xs = torch.meshgrid(axis, axis, indexing="ij")
    radius, angle = torch.sqrt(xs**2 + ys**2), torch.atan2(ys, xs)
    turn = torch.rand(count, 1, 1, generator=generator) * 6.28
    lobes = torch.tensor([9.0, 4.0, 2.0, 1.0])[kind].view(-1, 1, 1)
    outline = 0.65 + 0.15 * torch.cos(lobes * angle + turn)
    body = torch.sigmoid((outline - radius) * 12)
    texture = torch.rand(count, EDGE, EDGE, generator=generator) * (0.2 + 0.1 * lobes / 9)
    image = torch.stack([body, body * texture, body * radius], dim=1)
    return image + 0.05 * torch.randn(image.shape, generator=generator), kind


class ActivationMeter:
    """Keeps running magnitudes of the stages' outputs for the run's report."""

    def __init__(self, model):
        self.magnitude = {}
        for name, module in model.named_modules():
            if name.endswith("downsampling_layer") or name.split(".")[-2:-1] == ["stages"]:
                self.magnitude[name] = torch.zeros(())
                module.register_forward_hook(self.recorder(name))

    def recorder(self, name):
        def record(module, args, output):
            if module.training and isinstance(output, torch.Tensor):
                self.magnitude[name].add_(output.detach().abs().mean())

        return record

    def report(self, steps):
        return {name: value.item() / steps for name, value in self.magnitude.items()}


def build():
    return ConvNextV2ForImageClassification(
        ConvNextV2Config(
            num_channels=3, patch_size=4, hidden_sizes=[16, 24, 32], depths=[1, 1, 1], num_stages=3,
            num_labels=len(KINDS), image_size=EDGE,
        )
    )


def make_step(model, optimizer):
    @torch.compile(backend="aot_eager")
    def forward_loss(image, kind):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(pixel_values=image).logits
        loss = F.cross_entropy(logits.float(), kind, label_smoothing=0.1)
        loss = torch.where(torch.isfinite(loss), loss, torch.zeros_like(loss))
        return loss / len(KINDS)

    def step(image, kind):
        loss = forward_loss(image, kind)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


@torch.no_grad()
def accuracy(model, batches, batch_size, generator):
    model.eval()
    right = torch.zeros((), dtype=torch.long)
    for _ in range(batches):
        image, kind = grains(batch_size, generator)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            right += (model(pixel_values=image).logits.argmax(-1) == kind).sum()
    model.train()
    return right.item() / (batches * batch_size)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch-size", type=int, default=32)
    options = parser.parse_args()
    torch.manual_seed(13)
    generator = torch.Generator().manual_seed(13)

    model = build().train()
    meter = ActivationMeter(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.02)
    step = make_step(model, optimizer)
    begun = time.time()
    for number in range(1, options.steps + 1):
        loss = step(*grains(options.batch_size, generator))
        if number % 50 == 0:
            print(f"step {number} loss {loss.item():.4f} accuracy {accuracy(model, 4, options.batch_size, generator):.3f}")
    print(f"{options.steps} steps in {time.time() - begun:.1f} s")
    for name, value in meter.report(options.steps).items():
        print(f"  {name:45s} {value:.3f}")


if __name__ == "__main__":
    main()
