"""Semi-supervised classification: few labels, pseudo-labels of an averaged teacher for the rest."""
import argparse
import copy
import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, TensorDataset

CLASSES, FEATURES = 6, 40


def make_data(labeled, unlabeled, seed):
    g = torch.Generator().manual_seed(seed)
    centers = 1.3 * torch.randn(CLASSES, FEATURES, generator=g)

    def draw(n):
        y = torch.randint(0, CLASSES, (n,), generator=g)
        return centers[y] + 1.6 * torch.randn(n, FEATURES, generator=g), y

    return draw(labeled), draw(unlabeled), draw(512)


class Classifier(nn.Module):
    def __init__(self, hidden=32, dropout=0.2):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(FEATURES, hidden), nn.LayerNorm(hidden), nn.GELU(), nn.Dropout(dropout),
            nn.Linear(hidden, hidden), nn.LayerNorm(hidden), nn.GELU(), nn.Dropout(dropout),
        )
        self.head = nn.Linear(hidden, CLASSES)

    def forward(self, x):
        return self.head(self.body(x))


class Teacher:
    """The exponential average of the student's weights."""

    def __init__(self, student, decay):
        self.model = copy.deepcopy(student).requires_grad_(False).eval()
        self.decay, self.updates = decay, 0

    @torch.no_grad()
    def update(self, student):
        self.updates += 1
        decay = min(self.decay, 1 - 1 / (self.updates + 1))
        for average, current in zip(self.model.parameters(), student.parameters()):
            average.mul_(decay).add_(current, alpha=1 - decay)
        xm.mark_step()

    @torch.no_grad()
    def label(self, x):
        confidence, label = self.model(x).softmax(-1).max(-1)
        return confidence, label


def weak(x):
    return x + 0.1 * torch.randn_like(x)


def strong(x):
    keep = (torch.rand_like(x) > 0.25).float()
    return x * keep + 0.5 * torch.randn_like(x)


def unlabeled_loss(student, teacher, x, threshold):
    confidence, label = teacher.label(weak(x))
    sure = confidence > threshold
    logits = student(strong(x))
    return F.cross_entropy(logits[sure], label[sure], reduction="sum") / len(x)


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    value = (model(x).argmax(-1) == y).float().mean().item()
    model.train()
    return value


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--ratio", type=int, default=4)
    parser.add_argument("--threshold", type=float, default=0.5)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = xm.xla_device()
    labeled, unlabeled, test = make_data(args.batch_size * 8, args.batch_size * args.ratio * 8, seed=5)
    few = DataLoader(TensorDataset(*labeled), args.batch_size, shuffle=True, drop_last=True)
    many = DataLoader(TensorDataset(unlabeled[0]), args.batch_size * args.ratio, shuffle=True, drop_last=True)
    test_x, test_y = test[0].to(device), test[1].to(device)
    student = Classifier().to(device)
    teacher = Teacher(student, decay=0.98)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)

    step = 0
    for epoch in itertools.count():
        for (x, y), (u,) in zip(pl.MpDeviceLoader(few, device), pl.MpDeviceLoader(many, device)):
            supervised = F.cross_entropy(student(weak(x)), y, label_smoothing=0.05)
            ramp = min(1.0, (step + 1) / 12)
            loss = supervised + ramp * unlabeled_loss(student, teacher, u, args.threshold)
            optimizer.zero_grad()
            loss.backward()
            xm.optimizer_step(optimizer, barrier=True)
            teacher.update(student)
            step += 1
        print(f"epoch {epoch}: student {accuracy(student, test_x, test_y):.3f} teacher {accuracy(teacher.model, test_x, test_y):.3f}")
        if step >= args.steps:
            break


if __name__ == "__main__":
    main()
