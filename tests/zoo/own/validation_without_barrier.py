"""Training has its barriers; the validation loop has none, and all of its batches become one graph."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(40, 12), nn.Linear(12, 12), nn.Linear(12, 5)

    def forward(self, ids):
        h = self.emb(ids)
        return self.out(torch.tanh(self.rnn(h)).amax(1))


def loader(n, seed):
    g = torch.Generator().manual_seed(seed)
    for _ in range(n):
        ids = torch.randint(0, 40, (8, 6), generator=g)
        yield ids, ids.sum(1) % 5


def fit(model, opt, n):
    model.train()
    for ids, labels in loader(n, 0):
        opt.zero_grad()
        F.cross_entropy(model(ids.to(device)), labels.to(device)).backward()
        opt.step()
        torch_xla.sync()


@torch.no_grad()
def validate(model, n):
    model.eval()
    correct = 0
    for ids, labels in loader(n, 1):
        predicted = model(ids.to(device)).argmax(1)
        correct = correct + (predicted == labels.to(device)).sum()
    return correct.item() / (8 * n)


model = Net().to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch_xla.sync()
for epoch in range(3):
    fit(model, opt, 8)
    print("accuracy", round(validate(model, 40), 3))
