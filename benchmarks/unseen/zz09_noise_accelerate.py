"""Street noise maps: hourly sound levels forecast with a small GPT-2 backbone and accelerate."""
import json
import math
import platform
import time

import torch
from accelerate import Accelerator
from accelerate.utils import TorchDynamoPlugin, set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2Model, get_cosine_schedule_with_warmup

HOURS = 48
SENSORS = 8


class NoiseLevels(Dataset):
    def __init__(self, days: int, seed: int):
        g = torch.Generator().manual_seed(seed)
        hour = torch.arange(HOURS + 1).float()
        base = torch.rand(days, 1, SENSORS, generator=g) * 10 + 50
        rush = torch.exp(-(((hour % 24) - 8) ** 2) / 6) + torch.exp(-(((hour % 24) - 17) ** 2) / 6)
        weight = torch.rand(days, 1, SENSORS, generator=g) * 12
        night = -6 * torch.cos(hour / 24 * 2 * math.pi)
        levels = base + rush.view(1, -1, 1) * weight + night.view(1, -1, 1)
        self.levels = (levels + torch.randn(levels.shape, generator=g) - 60) / 10

    def __len__(self):
        return len(self.levels)

    def __getitem__(self, day):
        return {"past": self.levels[day, :-1], "next": self.levels[day, 1:]}


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        config = GPT2Config(
            vocab_size=1, n_positions=HOURS, n_embd=64, n_layer=2, n_head=4,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
        )
        self.lift = nn.Linear(SENSORS, config.n_embd)
        self.backbone = GPT2Model(config)
        self.level = nn.Linear(config.n_embd, SENSORS)

    def forward(self, past):
        hidden = self.backbone(inputs_embeds=self.lift(past)).last_hidden_state
        return past + self.level(hidden)


def describe(levels: torch.Tensor) -> torch.Tensor:
    """Statistics of the data for the log; called once before the training."""
    return torch.stack([levels.mean(), levels.std(), levels.amin(), levels.amax()])


def evaluate(accelerator, model, loader):
    model.eval()
    total = torch.zeros((), device=accelerator.device)
    with torch.inference_mode():
        for batch in loader:
            total += nn.functional.l1_loss(model(batch["past"]), batch["next"])
    model.train()
    return 10 * total.item() / len(loader)


def main():
    set_seed(12)
    plugin = TorchDynamoPlugin(backend="inductor", mode="default", dynamic=False)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, dynamo_plugin=plugin)

    train_set, held_set = NoiseLevels(4096, seed=1), NoiseLevels(512, seed=2)
    mean, std, low, high = describe(train_set.levels).tolist()
    accelerator.print(f"{platform.machine()}: mean {mean:.2f} std {std:.2f} range {low:.1f} to {high:.1f}")

    train_loader = DataLoader(train_set, batch_size=32, shuffle=True, drop_last=True)
    held_loader = DataLoader(held_set, batch_size=32)
    model = Forecaster()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    epochs = 8
    schedule = get_cosine_schedule_with_warmup(optimizer, 20, epochs * len(train_loader) // 2)
    model, optimizer, train_loader, held_loader, schedule = accelerator.prepare(
        model, optimizer, train_loader, held_loader, schedule
    )

    step, begun = 0, time.time()
    for epoch in range(epochs):
        for batch in train_loader:
            with accelerator.accumulate(model):
                loss = nn.functional.smooth_l1_loss(model(batch["past"]), batch["next"])
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            step += 1
            if step % 50 == 0:
                accelerator.print(json.dumps({"step": step, "loss": round(loss.item(), 4)}))
        error = evaluate(accelerator, model, held_loader)
        accelerator.print(json.dumps({"epoch": epoch, "decibel": round(error, 3)}))
    accelerator.print(f"{step} steps in {time.time() - begun:.1f} s")


if __name__ == "__main__":
    main()
