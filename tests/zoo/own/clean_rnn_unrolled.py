"""A hand-written LSTM unrolls 24 time steps into the graph of each training step, as it has to."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()


class CharLM(nn.Module):
    def __init__(self, vocab=30, d=12):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.gates = nn.Linear(2 * d, 4 * d)
        self.out = nn.Linear(d, vocab)

    def run(self, ids):
        x = self.emb(ids)
        h = c = torch.zeros(x.shape[0], x.shape[2], device=x.device)
        outputs = []
        for t in range(x.shape[1]):
            i, f, o, u = self.gates(torch.cat([x[:, t], h], dim=1)).chunk(4, dim=1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(u)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return self.out(torch.stack(outputs, dim=1))


def step(model, ids):
    logits = model.run(ids[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


model = CharLM().to(device)
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
g = torch.Generator().manual_seed(4)
torch_xla.sync()
for it in range(12):
    ids = torch.randint(0, 30, (4, 25), generator=g).to(device)
    opt.zero_grad()
    loss = step(model, ids)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    torch_xla.sync()
print("loss", round(loss.item(), 3))
