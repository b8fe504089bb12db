"""Small mixture-of-experts language model over a synthetic Markov source."""
import math

import torch_xla
import torch_xla.core.xla_model as xm
import torch
import torch.nn as nn
import torch.nn.functional as F

CONFIG = dict(vocab=32, dim=24, experts=3, length=12, batch=8, steps=3, lr=3e-3, balance=0.01)


class Expert(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up, self.down = nn.Linear(dim, dim * 2), nn.Linear(dim * 2, dim)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class MoELayer(nn.Module):
    def __init__(self, dim, experts):
        super().__init__()
        self.gate = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList(Expert(dim) for _ in range(experts))
        self.aux = None

    def forward(self, x):
        shape = x.shape
        tokens = x.reshape(-1, shape[-1])
        probs = F.softmax(self.gate(tokens), dim=-1)
        weight, choice = probs.max(dim=-1)
        out = torch.zeros_like(tokens)
        for e, expert in enumerate(self.experts):
            mask = choice == e
            out[mask] = expert(tokens[mask]) * weight[mask].unsqueeze(-1)
        load = F.one_hot(choice, len(self.experts)).float().mean(0)
        self.aux = len(self.experts) * (load * probs.mean(0)).sum()
        return out.view(shape)


class Mixer(nn.Module):
    def __init__(self, dim, length):
        super().__init__()
        mask = torch.tril(torch.ones(length, length))
        self.register_buffer("mask", mask)
        self.qk = nn.Linear(dim, dim * 2)
        self.v = nn.Linear(dim, dim)

    def forward(self, x):
        q, k = self.qk(x).chunk(2, -1)
        att = q @ k.transpose(1, 2) / math.sqrt(x.shape[-1])
        att = att.masked_fill(self.mask == 0, -1e4).softmax(-1)
        return att @ self.v(x)


class MoELM(nn.Module):
    def __init__(self, vocab, dim, experts, length):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.mixer, self.moe = Mixer(dim, length), MoELayer(dim, experts)
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        x = self.emb(ids)
        x = x + self.mixer(self.n1(x))
        x = x + self.moe(self.n2(x))
        return self.head(x)


class MarkovText:
    def __init__(self, vocab, seed=0):
        self.g = torch.Generator().manual_seed(seed)
        self.table = torch.softmax(2 * torch.randn(vocab, vocab, generator=self.g), -1)

    def sample(self, batch, length):
        ids = [torch.randint(0, self.table.shape[0], (batch,), generator=self.g)]
        for _ in range(length):
            ids.append(torch.multinomial(self.table[ids[-1]], 1, generator=self.g).squeeze(1))
        return torch.stack(ids, 1)


def decay_groups(model, wd):
    decay = [p for p in model.parameters() if p.dim() > 1]
    other = [p for p in model.parameters() if p.dim() <= 1]
    return [dict(params=decay, weight_decay=wd), dict(params=other, weight_decay=0.0)]


def main(cfg=CONFIG):
    torch.manual_seed(0)
    device = xm.xla_device()
    text = MarkovText(cfg["vocab"])
    model = MoELM(cfg["vocab"], cfg["dim"], cfg["experts"], cfg["length"]).to(device)
    optimizer = torch.optim.AdamW(decay_groups(model, 0.05), lr=cfg["lr"])
    log = torch.zeros(2, device=device)
    for step in range(cfg["steps"]):
        ids = text.sample(cfg["batch"], cfg["length"]).to(device)
        logits = model(ids[:, :-1])
        nll = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss = nll + cfg["balance"] * model.moe.aux
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        log += torch.stack([nll.detach(), model.moe.aux.detach()])
        xm.mark_step()
    nll, aux = (log / cfg["steps"]).tolist()
    print(f"mean nll {nll:.3f} perplexity {math.exp(nll):.2f} balance {aux:.3f}")


if __name__ == "__main__":
    main()
