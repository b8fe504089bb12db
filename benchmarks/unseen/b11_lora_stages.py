"""LoRA fine-tuning in two stages: adapters first, then the norm gains as well. Two bucket lengths."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_xla

VOCAB, DIM, BUCKETS, STEPS, STAGE_TWO, LOG_EVERY = 32, 16, (8, 16), 50, 20, 25


class LoRALinear(nn.Module):
    def __init__(self, dim_in, dim_out, rank=2, scale=0.5):
        super().__init__()
        self.base = nn.Linear(dim_in, dim_out, bias=False).requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, dim_in) / math.sqrt(dim_in))
        self.b = nn.Parameter(torch.zeros(dim_out, rank))
        self.scale = scale

    def forward(self, x):
        return self.base(x) + (x @ self.a.T @ self.b.T) * self.scale


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM).requires_grad_(False)
        self.gain = nn.Parameter(torch.ones(DIM), requires_grad=False)
        self.qkv = LoRALinear(DIM, 3 * DIM)
        self.out = LoRALinear(DIM, VOCAB)

    def forward(self, ids):
        h = F.layer_norm(self.embed(ids), (DIM,)) * self.gain
        q, k, v = self.qkv(h).chunk(3, -1)
        score = q @ k.transpose(1, 2) / math.sqrt(DIM)
        mask = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril().to(ids.device)
        return self.out(h + score.masked_fill(~mask, -1e9).softmax(-1) @ v)


def batch():
    """Sentences of any length, padded to the smaller bucket that holds them; -100 is ignored."""
    n = int(torch.randint(4, BUCKETS[-1] + 1, ()))
    width = next(b for b in BUCKETS if n <= b)
    ids = torch.zeros(8, width + 1, dtype=torch.long)
    ids[:, :n] = torch.randint(1, VOCAB, (8, n))
    target = ids[:, 1:].clone()
    target[target == 0] = -100
    return ids[:, :-1].contiguous(), target


def main():
    torch.manual_seed(0)
    device = torch_xla.device()
    model = TinyLM().to(device)
    opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    window = torch.zeros((), device=device)
    for step in range(STEPS):
        if step == STAGE_TWO:
            model.gain.requires_grad_(True)
            opt.add_param_group({"params": [model.gain], "lr": 0.02})
        ids, target = (t.to(device) for t in batch())
        loss = F.cross_entropy(model(ids).flatten(0, 1), target.flatten(), ignore_index=-100)
        opt.zero_grad()
        loss.backward()
        opt.step()
        window += loss.detach()
        torch_xla.sync()
        if (step + 1) % LOG_EVERY == 0:
            print(f"step {step + 1}: loss {window.item() / LOG_EVERY:.3f}")
            window.zero_()
            torch_xla.sync()


if __name__ == "__main__":
    main()
