"""Pairwise reward model on a tiny GPT-2, with activation statistics per layer."""
import collections

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2Model, get_cosine_schedule_with_warmup


class Preferences(Dataset):
    def __init__(self, n, vocab=200, length=32, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.good = torch.randint(0, vocab, (n, length), generator=g)
        self.bad = torch.randint(0, vocab, (n, length), generator=g)
        swap = self.good.lt(vocab // 4).sum(-1) < self.bad.lt(vocab // 4).sum(-1)
        self.good[swap], self.bad[swap] = self.bad[swap], self.good[swap].clone()

    def __len__(self):
        return len(self.good)

    def __getitem__(self, i):
        return {"chosen": self.good[i], "rejected": self.bad[i]}


class RewardModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.backbone = GPT2Model(config)
        self.score = nn.Linear(config.n_embd, 1, bias=False)

    def forward(self, ids):
        h = self.backbone(input_ids=ids, use_cache=False).last_hidden_state
        return self.score(h[:, -1]).squeeze(-1)


class ActivationStats:
    """Keeps the largest activation of each block, to notice outlier features."""

    def __init__(self):
        self.peak = collections.defaultdict(float)

    def attach(self, module, name):
        def hook(mod, args, output):
            out = output[0] if isinstance(output, tuple) else output
            self.peak[name] = max(self.peak[name], out.detach().abs().max().item())
        return module.register_forward_hook(hook)

    def summary(self):
        return " ".join(f"{k}={v:.2f}" for k, v in sorted(self.peak.items()))


def accuracy(model, loader):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for batch in loader:
            margin = model(batch["chosen"]) - model(batch["rejected"])
            right += (margin > 0).sum().item()
            total += len(margin)
    model.train()
    return right / total


def main():
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=200, n_positions=32, n_embd=48, n_layer=4, n_head=4,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = RewardModel(config)
    stats = ActivationStats()
    for i, block in enumerate(model.backbone.h):
        stats.attach(block.mlp, f"mlp{i}")
    train = DataLoader(Preferences(480), batch_size=16, shuffle=True, drop_last=True)
    test = DataLoader(Preferences(128, seed=1), batch_size=16)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sched = get_cosine_schedule_with_warmup(opt, 10, 2 * len(train))
    model.compile(backend="aot_eager")
    step = 0
    for epoch in range(2):
        for batch in train:
            rewards = model(torch.cat([batch["chosen"], batch["rejected"]]))
            good, bad = rewards.chunk(2)
            loss = -F.logsigmoid(good - bad).mean()
            loss.backward()
            opt.step()
            opt.zero_grad(set_to_none=True)
            sched.step()
            step += 1
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f} {stats.summary()}", flush=True)
        print(f"epoch {epoch} accuracy {accuracy(model, test):.3f}", flush=True)


if __name__ == "__main__":
    main()
