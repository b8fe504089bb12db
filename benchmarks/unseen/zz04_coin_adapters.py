"""Mint marks on coins: one small ViT, a LoRA adapter for each museum, one service for all of them."""
import random
import time
from collections import Counter

import torch
from peft import LoraConfig, get_peft_model
from torch.nn import functional as F
from transformers import ViTConfig, ViTForImageClassification

MUSEUMS = ["ashmolean", "bode", "capitolini", "fitzwilliam", "hermitage", "kunsthist", "numismatic", "topkapi", "vienna", "winterthur"]
MINTS = 5
PIXELS = 24


def strike(mints: torch.Tensor, wear: float, generator: torch.Generator) -> torch.Tensor:
    """Images of coins: a rim, and rays whose number is the mint's; wear and lighting are the museum's."""
    axis = torch.linspace(-1, 1, PIXELS)
    ys, xs = torch.meshgrid(axis, axis, indexing="ij")
    radius, angle = torch.sqrt(xs**2 + ys**2), torch.atan2(ys, xs)
    turn = torch.rand(len(mints), 1, 1, generator=generator) * 6.28
    rays = torch.cos((mints.view(-1, 1, 1) + 2) * angle + turn) * (radius < 0.7)
    rim = ((radius - 0.9).abs() < 0.08).float()
    light = torch.linspace(1 - wear, 1 + wear, PIXELS)
    images = (rays + rim) * light + wear * torch.randn(len(mints), PIXELS, PIXELS, generator=generator)
    return images.unsqueeze(1)


class Collection:
    def __init__(self, name: str, seed: int):
        self.name = name
        self.wear = 0.1 + 0.08 * seed
        self.generator = torch.Generator().manual_seed(seed)

    def batch(self, size: int):
        mints = torch.randint(0, MINTS, (size,), generator=self.generator)
        return strike(mints, self.wear, self.generator), mints


def build():
    backbone = ViTForImageClassification(
        ViTConfig(
            image_size=PIXELS, patch_size=6, num_channels=1, hidden_size=48, num_hidden_layers=2,
            num_attention_heads=4, intermediate_size=96, num_labels=MINTS,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )
    )
    return backbone


def pretrain(model, collections, steps: int):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(steps):
        pixels, mints = collections[step % len(collections)].batch(32)
        loss = F.cross_entropy(model(pixel_values=pixels).logits, mints)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"backbone pretrained, last loss {loss.item():.3f}")


def attach_adapters(backbone, rank: int):
    def lora():
        return LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", exclude_modules=["classifier"])

    model = get_peft_model(backbone, lora(), adapter_name=MUSEUMS[0])
    for name in MUSEUMS[1:]:
        model.add_adapter(name, lora())
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.02)
    return model


class MintService:
    """Answers requests in the order of their arrival with the adapter of the museum that asks."""

    def __init__(self, model, batch_size: int):
        self.model = model.eval()
        self.scorer = torch.compile(model, backend="aot_eager")
        self.batch_size = batch_size
        self.answered = Counter()
        self.correct = Counter()

    @torch.inference_mode()
    def answer(self, collection: Collection):
        pixels, mints = collection.batch(self.batch_size)
        self.model.set_adapter(collection.name)
        logits = self.scorer(pixel_values=pixels).logits
        self.answered[collection.name] += len(mints)
        self.correct[collection.name] += int((logits.argmax(-1) == mints).sum())


def main():
    torch.manual_seed(8)
    collections = [Collection(name, seed) for seed, name in enumerate(MUSEUMS)]
    backbone = build()
    pretrain(backbone, collections, steps=60)
    service = MintService(attach_adapters(backbone, rank=4), batch_size=32)

    rng = random.Random(2)
    arrivals = collections + [rng.choice(collections) for _ in range(190)]
    begun = time.perf_counter()
    slowest = 0.0
    for collection in arrivals:
        asked = time.perf_counter()
        service.answer(collection)
        slowest = max(slowest, time.perf_counter() - asked)
    spent = time.perf_counter() - begun
    print(f"{len(arrivals)} requests in {spent:.1f} s, slowest {slowest:.2f} s")
    for name in MUSEUMS:
        print(f"  {name:12s} {service.correct[name] / service.answered[name]:.2f} of {service.answered[name]}")


if __name__ == "__main__":
    main()
