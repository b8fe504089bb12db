"""A shared encoder with one adapter per customer, distilled with an annealed temperature."""
import argparse
import random
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Distillation:
    temperature: float = 8.0
    floor: float = 1.0
    decay: float = 0.9
    weight: float = 0.7


class Adapter(nn.Module):
    def __init__(self, width, rank):
        super().__init__()
        self.down = nn.Linear(width, rank)
        self.up = nn.Linear(rank, width)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return x + self.up(nn.functional.relu(self.down(x)))


class Student(nn.Module):
    def __init__(self, customers, features=40, width=64, classes=10):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(features, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, width))
        self.adapters = nn.ModuleList(Adapter(width, 8) for _ in range(customers))
        self.head = nn.Linear(width, classes)

    def forward(self, x, customer):
        h = self.encoder(x)
        h = self.adapters[customer](h)
        return self.head(h)


class Stream:
    """Batches of one customer at a time, in random order."""

    def __init__(self, customers, batch, features, classes, seed):
        self.random = random.Random(seed)
        self.customers, self.batch, self.features = customers, batch, features
        self.teacher = torch.randn(customers, features, classes)

    def __call__(self):
        customer = self.random.randrange(self.customers)
        x = torch.randn(self.batch, self.features)
        return customer, x, x @ self.teacher[customer]


class Trainer:
    def __init__(self, model, config, lr):
        self.model = model
        self.config = config
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, foreach=False)
        self.predict = torch.compile(model, backend="aot_eager")
        self.objective = torch.compile(self.loss, backend="aot_eager")

    def loss(self, logits, teacher):
        t = self.config.temperature
        soft = nn.functional.kl_div(
            torch.log_softmax(logits / t, -1), torch.softmax(teacher / t, -1), reduction="batchmean")
        hard = nn.functional.cross_entropy(logits, teacher.argmax(-1))
        return self.config.weight * soft * t * t + (1 - self.config.weight) * hard

    def step(self, customer, x, teacher):
        loss = self.objective(self.predict(x, customer), teacher)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.config.temperature = max(self.config.floor, self.config.temperature * self.config.decay)
        return loss.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--customers", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(0)
    stream = Stream(args.customers, 32, 40, 10, seed=5)
    trainer = Trainer(Student(args.customers), Distillation(), 1e-3)
    recent = []
    for step in range(args.steps):
        recent.append(trainer.step(*stream()))
        if (step + 1) % 15 == 0:
            print(f"step {step + 1} loss {torch.stack(recent).mean():.3f} temperature {trainer.config.temperature:.2f}")
            recent.clear()


if __name__ == "__main__":
    main()
