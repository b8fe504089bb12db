"""Small image classifier on synthetic textures; the optimizer step is compiled as one function.

Cosine schedule with warm-up, exponential moving average of the weights, accuracy once per epoch.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

SIZE, CLASSES = 20, 8


def textures(n, seed):
    g = torch.Generator().manual_seed(seed)
    label = torch.randint(0, CLASSES, (n,), generator=g)
    angle = label.float() * math.pi / CLASSES + 0.12 * torch.randn(n, generator=g)
    freq = 1.2 + 0.3 * torch.rand(n, generator=g)
    phase = 6.28 * torch.rand(n, generator=g)
    yy, xx = torch.meshgrid(torch.arange(SIZE).float(), torch.arange(SIZE).float(), indexing="ij")
    wave = torch.cos(angle)[:, None, None] * xx + torch.sin(angle)[:, None, None] * yy
    img = torch.sin(freq[:, None, None] * wave + phase[:, None, None])
    img = img[:, None].repeat(1, 3, 1, 1) * torch.rand(n, 3, 1, 1, generator=g)
    return img + 0.6 * torch.randn(n, 3, SIZE, SIZE, generator=g), label


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1 = nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(4, c)
        self.conv2 = nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(4, c)

    def forward(self, x):
        h = F.silu(self.norm1(self.conv1(x)))
        return F.silu(x + self.norm2(self.conv2(h)))


def make_net():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), Block(16), nn.AvgPool2d(2), Block(16), Block(16),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, CLASSES),
    )


class Ema:
    def __init__(self, net, decay):
        self.decay = decay
        self.shadow = [p.detach().clone() for p in net.parameters()]

    @torch.no_grad()
    def update(self, net):
        torch._foreach_lerp_(self.shadow, [p.detach() for p in net.parameters()], 1 - self.decay)


def lr_at(i, total, peak=4e-3, warm=20):
    if i < warm:
        return peak * (i + 1) / warm
    return peak * 0.5 * (1 + math.cos(math.pi * (i - warm) / (total - warm)))


@torch.no_grad()
def evaluate(net, x, y):
    hits = torch.zeros((), dtype=torch.long)
    for bx, by in zip(x.split(100), y.split(100)):
        hits += (net(bx).argmax(1) == by).sum()
    return hits.item() / len(y)


def main():
    torch.manual_seed(3)
    net = make_net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=0.02)
    ema = Ema(net, 0.98)

    @torch.compile(backend="aot_eager", fullgraph=False)
    def optimizer_step():
        optimizer.step()

    train_x, train_y = textures(1600, 0)
    test_x, test_y = textures(200, 1)
    batch, epochs = 80, 3
    total = epochs * len(train_x) // batch
    g = torch.Generator().manual_seed(9)
    i = 0
    for epoch in range(epochs):
        running = torch.zeros(())
        for pick in torch.randperm(len(train_x), generator=g).split(batch):
            for group in optimizer.param_groups:
                group["lr"] = lr_at(i, total)
            x = train_x[pick]
            if torch.rand((), generator=g) < 0.5:
                x = x + 0.1 * torch.randn(x.shape, generator=g)
            loss = F.cross_entropy(net(x), train_y[pick])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer_step()
            ema.update(net)
            running += loss.detach()
            i += 1
        acc = evaluate(net, test_x, test_y)
        print(f"epoch {epoch}  lr {lr_at(i - 1, total):.2e}  loss {running.item() / (len(train_x) // batch):.4f}  acc {acc:.3f}")
    for p, s in zip(net.parameters(), ema.shadow):
        p.data.copy_(s)
    print(f"averaged weights: acc {evaluate(net, test_x, test_y):.3f}")


if __name__ == "__main__":
    main()
