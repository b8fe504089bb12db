import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Settings:
    epochs: int = 6
    batch: int = 50
    lr: float = 2e-3
    temperature: float = 3.0
    mix: float = 0.7
    print_every: int = 50


def glyphs(n, seed):
    g = torch.Generator().manual_seed(seed)
    shapes = torch.randn(10, 1, 16, 16, generator=torch.Generator().manual_seed(99))
    shapes = F.avg_pool2d(shapes, 3, 1, 1) * 3
    y = torch.randint(0, 10, (n,), generator=g)
    x = shapes[y] + 0.7 * torch.randn(n, 1, 16, 16, generator=g)
    return TensorDataset(x, y)


class ConvNet(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        layers, c = [], 1
        for d in range(depth):
            layers += [nn.Conv2d(c, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
            if d < 2:
                layers.append(nn.MaxPool2d(2))
            c = width
        self.features = nn.Sequential(*layers)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.drop(self.features(x).mean((2, 3))))


class Distiller:
    def __init__(self, teacher, student, cfg):
        self.cfg = cfg
        self.student = student
        self.run_student = torch.compile(student, backend="aot_eager")
        self.run_teacher = torch.compile(teacher.eval().requires_grad_(False), backend="aot_eager")
        self.criterion = torch.compile(self.objective, backend="aot_eager")

    def objective(self, logits, soft, y):
        t = self.cfg.temperature
        kd = F.kl_div(F.log_softmax(logits / t, -1), F.softmax(soft / t, -1), reduction="batchmean") * t * t
        return self.cfg.mix * kd + (1 - self.cfg.mix) * F.cross_entropy(logits, y)

    def loss(self, x, y):
        with torch.no_grad():
            soft = self.run_teacher(x)
        return self.criterion(self.run_student(x), soft, y)

    @torch.no_grad()
    def accuracy(self, loader):
        self.student.eval()
        right = sum((self.run_student(x).argmax(1) == y).sum() for x, y in loader)
        self.student.train()
        return right.item() / len(loader.dataset)


def pretrain(net, loader, steps=60):
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for i, (x, y) in zip(range(steps), loader):
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
    return net


def main():
    cfg = Settings()
    torch.manual_seed(4)
    train = DataLoader(glyphs(4000, 1), cfg.batch, shuffle=True, drop_last=True)
    valid = DataLoader(glyphs(500, 2), cfg.batch)
    teacher = pretrain(ConvNet(24, 3), train)
    distiller = Distiller(teacher, ConvNet(12, 3), cfg)
    opt = torch.optim.Adam(distiller.student.parameters(), lr=cfg.lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(opt, cfg.lr, total_steps=cfg.epochs * len(train))
    step, started = 0, time.time()
    for epoch in range(cfg.epochs):
        for x, y in train:
            opt.zero_grad()
            loss = distiller.loss(x, y)
            loss.backward()
            opt.step()
            schedule.step()
            step += 1
            if step % cfg.print_every == 0:
                print(f"{time.time() - started:.1f}s step {step} lr {schedule.get_last_lr()[0]:.5f} loss {loss.item():.4f}")
        print(f"epoch {epoch} accuracy {distiller.accuracy(valid):.3f}")


if __name__ == "__main__":
    main()
