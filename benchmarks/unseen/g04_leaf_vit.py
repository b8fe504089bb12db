"""Leaf disease classifier: a small ViT from transformers, trained through accelerate."""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
import torch_xla
from accelerate import Accelerator
from transformers import ViTConfig, ViTForImageClassification


@dataclass
class Args:
    classes: int = 8
    size: int = 32
    batch: int = 16
    steps: int = 150
    lr: float = 0.02


class Leaves(torch.utils.data.Dataset):
    def __init__(self, a, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.y = torch.randint(0, a.classes, (n,), generator=g)
        proto = torch.randn(a.classes, 3, 4, 4, generator=torch.Generator().manual_seed(99))
        base = F.interpolate(proto, size=(a.size, a.size), mode="bilinear")
        self.x = base[self.y] + 0.6 * torch.randn(n, 3, a.size, a.size, generator=g)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def checked(update):
    """Scores are published: refuse to count nonsense."""

    def inner(self, logits, labels, loss):
        classes = set(logits.argmax(-1).tolist())
        if len(classes) == 1:
            self.collapsed += 1
        return update(self, logits, labels, loss)

    return inner


class Board:
    """Scores shown on the wall screen."""

    def __init__(self, a, device):
        self.hits = torch.zeros((), device=device)
        self.collapsed = 0
        self.batch = a.batch
        self.loss = torch.zeros((), device=device)
        self.n = 0

    @checked
    def add(self, logits, labels, loss):
        self.hits += (logits.argmax(-1) == labels).sum()
        self.loss += loss
        self.n += 1

    def show(self, step):
        acc = self.hits.item() / (self.n * self.batch)
        print(f"step {step} loss {self.loss.item() / self.n:.3f} acc {acc:.3f} collapsed {self.collapsed}")
        self.hits.zero_()
        self.loss.zero_()
        self.n = 0


def build(a):
    return ViTForImageClassification(ViTConfig(
        image_size=a.size, patch_size=8, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=96, num_labels=a.classes, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, attn_implementation="eager"))


def forward_backward(acc, model, x, y):
    logits = model(pixel_values=x).logits
    loss = F.cross_entropy(logits, y)
    torch_xla.sync()  # free the forward
    acc.backward(loss)
    torch_xla.sync()  # grads are ready
    return logits.detach(), loss.detach()


def main():
    a = Args()
    torch.manual_seed(1)
    acc = Accelerator()
    model = build(a).to(acc.device)
    opt = torch.optim.SGD(model.parameters(), lr=a.lr, momentum=0.9)
    ds = Leaves(a, a.batch * a.steps, seed=1)
    loader = torch.utils.data.DataLoader(ds, batch_size=a.batch, shuffle=True, drop_last=True)
    board = Board(a, acc.device)
    model.train()
    for step, (x, y) in enumerate(loader, 1):
        x, y = x.to(acc.device), y.to(acc.device)
        logits, loss = forward_backward(acc, model, x, y)
        opt.step()
        opt.zero_grad()
        torch_xla.sync()
        board.add(logits, y, loss)
        if step % 50 == 0:
            board.show(step)


if __name__ == "__main__":
    main()
