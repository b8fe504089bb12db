"""Train a two-layer graph network as tutorials do: messages by index_add, losses and accuracies over boolean masks."""

import torch
from _session import compiled, device, finish, sync
from torch import nn
from torch.nn import functional as F

nodes, features, classes, epochs = 60, 16, 4, 40


class GCNConv(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.lin, self.bias = nn.Linear(inside, outside, bias=False), nn.Parameter(torch.zeros(outside))

    def forward(self, x, edge_index):
        row, col = edge_index
        deg = torch.zeros(x.size(0), device=x.device).index_add(0, col, torch.ones(col.size(0), device=x.device))
        norm = (deg[row] * deg[col]).clamp(min=1).rsqrt()
        x = self.lin(x)
        return torch.zeros_like(x).index_add(0, col, norm[:, None] * x[row]) + self.bias


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = GCNConv(features, 16), GCNConv(16, classes)

    def forward(self, x, edge_index):
        return self.conv2(F.relu(self.conv1(x, edge_index)), edge_index)


torch.manual_seed(12345)
x, y = torch.randn(nodes, features).to(device), torch.randint(0, classes, (nodes,)).to(device)
edge_index = torch.randint(0, nodes, (2, 300)).to(device)
train_mask = (torch.arange(nodes) < 30).to(device)
val_mask = ((torch.arange(nodes) >= 30) & (torch.arange(nodes) < 45)).to(device)
model = GCN().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
call = compiled(model)


def train():
    model.train()
    optimizer.zero_grad()
    out = call(x, edge_index)
    loss = F.cross_entropy(out[train_mask], y[train_mask])
    loss.backward()
    optimizer.step()
    sync()
    return loss


@torch.no_grad()
def test():
    model.eval()
    pred = call(x, edge_index).argmax(dim=1)
    return [int((pred[mask] == y[mask]).sum()) / int(mask.sum()) for mask in (train_mask, val_mask)]


history = []
for epoch in range(1, epochs + 1):
    loss = train()
    history.append(float(loss))
    train_acc, val_acc = test()
    if epoch % 10 == 0:
        print(f"Epoch: {epoch:03d}, Loss: {loss:.4f}, Train: {train_acc:.4f}, Val: {val_acc:.4f}")
finish(history)
