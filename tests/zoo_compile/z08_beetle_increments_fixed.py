"""Class-incremental identification of ground beetles from elytra descriptors (iCaRL-flavoured)."""
import copy
import torch
from torch import nn
import torch.nn.functional as F


class Elytra:
    """Stream of field campaigns; each brings new species."""

    def __init__(self, species=30, per_campaign=3, dims=64):
        self.prototypes = torch.randn(species, dims)
        self.per_campaign = per_campaign

    def campaign(self, k, n=640):
        label = torch.randint(k * self.per_campaign, (k + 1) * self.per_campaign, (n,))
        return self.prototypes[label] + 0.9 * torch.randn(n, self.prototypes.shape[1]), label

    def __len__(self):
        return len(self.prototypes) // self.per_campaign


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Identifier(nn.Module):
    def __init__(self, dims=64, width=96, depth=5, classes=3):
        super().__init__()
        self.entry = nn.Linear(dims, width)
        self.body = nn.ModuleList(Residual(width) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def features(self, x):
        x = self.entry(x)
        for block in self.body:
            x = block(x)
        return F.layer_norm(x, x.shape[-1:])

    def forward(self, x):
        return self.head(self.features(x))

    @torch.no_grad()
    def widen(self, extra):
        old = self.head
        self.head = nn.Linear(old.in_features, old.out_features + extra)
        self.head.weight[: old.out_features] = old.weight
        self.head.bias[: old.out_features] = old.bias


class Rehearsal:
    def __init__(self, per_class=20):
        self.per_class, self.x, self.y = per_class, [], []

    def keep(self, x, y):
        for c in y.unique().tolist():
            chosen = (y == c).nonzero()[: self.per_class, 0]
            self.x.append(x[chosen])
            self.y.append(y[chosen])

    def draw(self, n):
        x, y = torch.cat(self.x), torch.cat(self.y)
        pick = torch.randint(len(x), (n,))
        return x[pick], y[pick]


def learn_campaign(model, features, teacher, x, y, memory, epochs=5, batch=64):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-3)
    total = 0.0
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(batch):
            bx, by = x[rows], y[rows]
            if teacher is not None:
                rx, ry = memory.draw(batch // 2)
            else:
                rx, ry = bx[: batch // 2], by[: batch // 2]
            bx, by = torch.cat([bx, rx]), torch.cat([by, ry])
            logits = model.head(features(bx))
            loss = F.cross_entropy(logits, by)
            if teacher is not None:
                with torch.no_grad():
                    past = teacher(bx)
                loss = loss + F.kl_div(logits[:, : past.shape[1]].log_softmax(1), past.softmax(1),
                                       reduction="batchmean")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total = loss.detach()
    return float(total)


def main():
    torch.manual_seed(8)
    stream, memory = Elytra(), Rehearsal()
    model, teacher = Identifier(), None
    features = torch.compile(model.features, backend="aot_eager")
    for k in range(len(stream)):
        if k:
            teacher = copy.deepcopy(model).requires_grad_(False)
            model.widen(stream.per_campaign)
        x, y = stream.campaign(k)
        loss = learn_campaign(model, features, teacher, x, y, memory)
        memory.keep(x, y)
        with torch.no_grad():
            tx, ty = memory.draw(512)
            accuracy = (model(tx).argmax(1) == ty).float().mean().item()
        print(f"campaign {k}: {model.head.out_features} species, loss {loss:.3f}, recall {accuracy:.3f}")


if __name__ == "__main__":
    main()
