"""Translation-like encoder with batches of at most 48 tokens: few long sentences or many short ones."""
import torch
import torch.nn as nn
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
BUDGET = 48


class Encoder(nn.Module):
    def __init__(self, vocab=64, d=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.mix = nn.Linear(d, d)
        self.out = nn.Linear(d, vocab)

    def forward(self, ids):
        h = self.emb(ids)
        return self.out(torch.tanh(self.mix(h)))


def batches():
    g = torch.Generator().manual_seed(1)
    for length in [6, 6, 6, 12, 12, 6, 24, 12, 6, 24]:
        yield torch.randint(0, 64, (BUDGET // length, length), generator=g)


model = Encoder().to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loss_fn = nn.CrossEntropyLoss()
torch_xla.sync()
for step, ids in enumerate(batches()):
    ids = ids.to(device)
    loss = loss_fn(model(ids).flatten(0, 1), ids.flatten())
    loss.backward()
    opt.step()
    opt.zero_grad()
    torch_xla.sync()
print(f"loss {loss.item():.3f}")
