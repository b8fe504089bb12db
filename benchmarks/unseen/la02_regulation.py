"""Graph attention over a gene regulatory network: predicts expression after a knock-out."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

GENES = 240
REGULATORS = 40
EDGES = 1500
STEPS = 24
BATCH = 12
HEADS = 2
DIM = 16


def regulatory_network(rng):
    """Edges from regulators to targets with signed strengths, no duplicates."""
    pairs = set()
    while len(pairs) < EDGES:
        source, target = int(rng.integers(REGULATORS)), int(rng.integers(GENES))
        if source != target:
            pairs.add((source, target))
    edges = np.array(sorted(pairs)).T
    strength = rng.normal(scale=0.6, size=EDGES).astype(np.float32)
    return edges, strength


def knock_out(rng, edges, strength, n):
    """Simulates n perturbed cells: (start expression, expression after propagation)."""
    weights = np.zeros((GENES, GENES), np.float32)
    weights[edges[1], edges[0]] = strength
    start = rng.gamma(2.0, 0.5, size=(n, GENES)).astype(np.float32)
    start[np.arange(n), rng.integers(0, REGULATORS, n)] = 0.0
    state = start
    for _ in range(2):
        state = 0.6 * state + 0.4 * np.tanh(state @ weights.T)
    noise = rng.normal(scale=0.02, size=state.shape).astype(np.float32)
    return torch.from_numpy(start), torch.from_numpy(state.astype(np.float32) + noise)


class GeneAttention(nn.Module):
    """GAT layer on an edge list; softmax runs over the regulators of each target."""

    def __init__(self, dim=DIM, heads=HEADS):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(dim, dim * heads)
        self.to_source = nn.Parameter(torch.randn(heads, dim) * 0.1)
        self.to_target = nn.Parameter(torch.randn(heads, dim) * 0.1)
        self.merge = nn.Linear(dim * heads, dim)

    def forward(self, x, edges):
        cells, genes, dim = x.shape
        h = self.project(x).view(cells, genes, self.heads, dim)
        source, target = edges[0], edges[1]
        score = (h * self.to_source).sum(-1)[:, source] + (h * self.to_target).sum(-1)[:, target]
        weight = torch.exp(F.leaky_relu(score, 0.2).clamp(max=8.0))
        total = torch.zeros(cells, genes, self.heads, device=x.device).index_add(1, target, weight)
        mixed = torch.zeros_like(h).index_add(1, target, h[:, source] * weight[..., None])
        mixed = mixed / (total[..., None] + 1e-6)
        return x + F.elu(self.merge(mixed.flatten(2)))


class DropEdge:
    """Hides a random share of the regulations from each training step."""

    def __init__(self, edges, p, seed):
        self.edges, self.p = edges, p
        self.generator = torch.Generator().manual_seed(seed)

    def sample(self):
        kept = torch.rand(self.edges.shape[1], generator=self.generator) >= self.p
        return self.edges[:, kept]


class ResponseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.identity = nn.Parameter(torch.randn(GENES, DIM) * 0.3)
        self.lift = nn.Linear(1, DIM)
        self.layers = nn.ModuleList(GeneAttention() for _ in range(2))
        self.readout = nn.Linear(DIM, 1)

    def forward(self, expression, edges):
        x = self.lift(expression[..., None]) + self.identity
        for layer in self.layers:
            x = layer(x, edges)
        return expression + self.readout(x).squeeze(-1)


def main():
    rng = np.random.default_rng(31)
    torch.manual_seed(31)
    device = torch_xla.device()
    edges, strength = regulatory_network(rng)
    all_edges = torch.from_numpy(edges)
    drop = DropEdge(all_edges, p=0.15, seed=31)
    model = ResponseNet().to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3)

    losses = []
    for step in range(1, STEPS + 1):
        start, after = knock_out(rng, edges, strength, BATCH)
        predicted = model(start.to(device), drop.sample().to(device))
        loss = F.mse_loss(predicted, after.to(device))
        opt.zero_grad()
        loss.backward()
        xm.optimizer_step(opt)
        losses.append(loss.detach())
        xm.mark_step()
        if step % 12 == 0:
            print(f"step {step}: mse {torch.stack(losses[-12:]).mean().item():.4f}")

    model.eval()
    with torch.no_grad():
        start, after = knock_out(rng, edges, strength, BATCH)
        predicted = model(start.to(device), all_edges.to(device)).cpu()
    print(f"held-out r = {np.corrcoef(predicted.flatten(), after.flatten())[0, 1]:.4f}")


if __name__ == "__main__":
    main()
