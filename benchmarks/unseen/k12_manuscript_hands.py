"""Which scribe wrote a page? Line strips go through a small transformer; pages are the unit of the evaluation."""
import collections
import time
from typing import Dict, List, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

SCRIBES = 6
STRIP = (24, 16)  # columns and rows of a line strip


class Pages(Dataset):
    """A page is eight strips; a scribe has a slant, a stroke width and a rhythm."""

    def __init__(self, count: int, seed: int):
        g = torch.Generator().manual_seed(seed)
        columns, rows = STRIP
        x = torch.arange(columns).float()[:, None]
        y = torch.arange(rows).float()[None]
        self.pages = []
        for number in range(count):
            scribe = int(torch.randint(0, SCRIBES, (), generator=g))
            strips = []
            for _ in range(8):
                rhythm = 0.5 + 0.15 * scribe
                slant = 0.1 * (scribe % 3)
                phase = 6 * torch.rand((), generator=g)
                ink = torch.sin(rhythm * (x + slant * y) + phase) * torch.exp(-((y - rows / 2) ** 2) / 20)
                strips.append(ink + 0.5 * torch.randn(columns, rows, generator=g))
            self.pages.append({
                "strips": torch.stack(strips),
                "scribe": scribe,
                "shelfmark": f"Cod. {100 + seed} fol. {number // 2}{'rv'[number % 2]}",
            })

    def __len__(self):
        return len(self.pages)

    def __getitem__(self, i):
        return self.pages[i]


def collate(pages: List[Dict]) -> Dict:
    return {
        "strips": torch.stack([p["strips"] for p in pages]),
        "scribe": torch.tensor([p["scribe"] for p in pages]),
        "shelfmark": pages[0]["shelfmark"],
    }


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, n, w = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, w))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.norms: List[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        x = x + self.mlp(self.norm2(x))
        self.norms.append(x.detach().norm(dim=-1).mean())
        return x


class HandNet(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4, depth: int = 2):
        super().__init__()
        self.embed = nn.Linear(STRIP[1], width)
        self.place = nn.Parameter(0.02 * torch.randn(STRIP[0], width))
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(depth)])
        self.head = nn.Linear(width, SCRIBES)

    def forward(self, strips: Tensor, scribe: Optional[Tensor] = None, shelfmark: Optional[str] = None) -> Dict:
        b, s = strips.shape[:2]
        x = self.embed(strips.flatten(0, 1)) + self.place
        for layer in self.layers:
            x = layer(x)
        logits = self.head(x.mean(1)).view(b, s, SCRIBES).mean(1)
        out = {"logits": logits, "source": shelfmark or "unknown"}
        if scribe is not None:
            out["loss"] = F.cross_entropy(logits, scribe)
        return out


def report_norms(net: HandNet) -> str:
    """How the residual stream grows from layer to layer, over the epoch that has ended."""
    means = [torch.stack(layer.norms).mean().item() for layer in net.layers]
    for layer in net.layers:
        layer.norms.clear()
    return " ".join(f"{m:.2f}" for m in means)


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader):
    model.eval()
    wrong = collections.Counter()
    hits = total = 0
    for batch in loader:
        guess = model(batch["strips"])["logits"].argmax(-1)
        miss = guess != batch["scribe"]
        wrong.update(batch["scribe"][miss].tolist())
        hits += int((~miss).sum())
        total += len(guess)
    model.train()
    return hits / total, wrong.most_common(1)


def main():
    torch.manual_seed(9)
    train = DataLoader(Pages(256, 1), batch_size=8, shuffle=True, collate_fn=collate)
    valid = DataLoader(Pages(64, 2), batch_size=8, collate_fn=collate)
    net = HandNet()
    model = torch.compile(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    for epoch in range(2):
        began = time.perf_counter()
        losses, sources = [], collections.Counter()
        for batch in train:
            out = model(**batch)
            optimizer.zero_grad()
            out["loss"].backward()
            optimizer.step()
            losses.append(out["loss"].detach())
            sources[out["source"].split(" fol.")[0]] += 1
        loss = torch.stack(losses).mean().item()
        norms = report_norms(net)
        accuracy, worst = evaluate(model, valid)
        print(
            f"epoch {epoch}: loss {loss:.4f} accuracy {accuracy:.3f} worst {worst} norms {norms} "
            f"sources {dict(sources)} {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
