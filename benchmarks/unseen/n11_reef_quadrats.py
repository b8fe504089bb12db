"""Cover of living coral in photographed reef quadrats: a compiled CNN that pools a variable number of crops per quadrat."""
import copy
import io
import json
import random
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.nn.functional as F
from torch import nn

CONFIG = {"side": 32, "crop": 16, "crops": [1, 9], "width": 12, "batch": 8, "epochs": 3, "steps": 30, "lr": 3e-3, "seed": 6}


def photograph(generator, side):
    """Blobs of coral (textured, reddish) on sand and rubble. Returns the picture and the share that is alive."""
    ys, xs = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    alive = torch.zeros(side, side, dtype=torch.bool)
    for _ in range(int(torch.randint(0, 5, (1,), generator=generator))):
        cy, cx = (torch.rand(2, generator=generator) * side).tolist()
        radius = 3 + 7 * torch.rand((), generator=generator)
        alive |= (ys - cy) ** 2 + (xs - cx) ** 2 < radius ** 2
    texture = torch.randn(3, side, side, generator=generator)
    colour = torch.where(alive, torch.tensor([0.7, 0.1, 0.2])[:, None, None], torch.tensor([0.5, 0.5, 0.4])[:, None, None])
    return colour + 0.15 * texture, alive.float().mean()


def cut(pictures, count, crop, rng):
    """`count` crops of every picture, at the same places for the whole batch."""
    side = pictures.shape[-1]
    crops = []
    for _ in range(count):
        top, left = rng.randrange(side - crop), rng.randrange(side - crop)
        crops.append(pictures[..., top:top + crop, left:left + crop].contiguous())
    return crops


class CoverNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(3, width)
        self.body = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.attention = nn.Linear(2 * width, 1)
        self.head = nn.Linear(2 * width, 1)

    def encode(self, crop):
        return F.gelu(self.body(F.gelu(self.norm(self.stem(crop))))).mean((2, 3))

    def forward(self, crops):
        codes = torch.stack([self.encode(c) for c in crops], dim=1)
        weights = self.attention(codes).softmax(1)
        return self.head((weights * codes).sum(1)).squeeze(1).sigmoid()


class BestKeeper:
    """Keeps the best weights by the running loss, on disk as well, so that a killed job loses nothing."""

    def __init__(self, folder):
        self.folder, self.best, self.state, self.average = Path(folder), float("inf"), None, None

    def offer(self, model, optimizer, loss, step):
        self.average = loss if self.average is None else 0.97 * self.average + 0.03 * loss
        if self.average < self.best:
            self.best = self.average
            self.state = copy.deepcopy(model.state_dict())
            buffer = io.BytesIO()
            torch.save({"model": self.state, "optimizer": optimizer.state_dict(), "step": step}, buffer)
            (self.folder / "best.pt").write_bytes(buffer.getvalue())
            (self.folder / "best.json").write_text(json.dumps({"step": step, "loss": self.best, **CONFIG}))


def evaluate(net, pictures, cover, config):
    rng = random.Random(0)
    with torch.inference_mode():
        guess = net(cut(pictures, config["crops"][1], config["crop"], rng))
    return (guess - cover).abs().mean().item()


def main(config):
    torch.manual_seed(config["seed"])
    generator, rng = torch.Generator().manual_seed(config["seed"]), random.Random(config["seed"])
    shots = [photograph(generator, config["side"]) for _ in range(200)]
    pictures, cover = torch.stack([p for p, _ in shots]), torch.stack([c for _, c in shots])
    train_x, train_y, test_x, test_y = pictures[:160], cover[:160], pictures[160:], cover[160:]

    net = CoverNet(config["width"])
    fast = torch.compile(net, backend="aot_eager")
    optimizer = torch.optim.AdamW(net.parameters(), lr=config["lr"])
    with TemporaryDirectory() as folder:
        keeper, step = BestKeeper(folder), 0
        for epoch in range(config["epochs"]):
            started = time.time()
            for _ in range(config["steps"]):
                rows = torch.randint(0, len(train_x), (config["batch"],), generator=generator)
                crops = cut(train_x[rows], rng.randint(*config["crops"]), config["crop"], rng)
                loss = F.binary_cross_entropy(fast(crops), train_y[rows])
                loss.backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                keeper.offer(net, optimizer, loss.item(), step)
                step += 1
            print(f"epoch {epoch}: running loss {keeper.average:.4f}, {time.time() - started:.1f} s")
        net.load_state_dict(keeper.state)
        print(f"best at loss {keeper.best:.4f}; cover is off by {evaluate(net, test_x, test_y, config):.3f} on new quadrats")


if __name__ == "__main__":
    main(CONFIG)
