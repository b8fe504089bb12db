import torch_xla
import torch_xla.core.xla_model as xm

import json
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

CONFIG = json.loads("""{"rows": 6000, "batch": 64, "epochs": 6, "lr": 0.003, "warmup": 60,
                        "log_every": 50, "dropout": 0.1, "width": 64, "clip": 1.0}""")
CARDINALITIES = [12, 7, 30, 4]
NUMERIC = 10


def synth(rows, seed):
    g = torch.Generator().manual_seed(seed)
    cats = torch.stack([torch.randint(0, c, (rows,), generator=g) for c in CARDINALITIES], 1)
    nums = torch.randn(rows, NUMERIC, generator=g)
    score = nums[:, 0] - 0.7 * nums[:, 1] * nums[:, 2] + 0.2 * (cats[:, 0] % 3) - 0.3
    label = (score + 0.3 * torch.randn(rows, generator=g) > 0).float()
    return cats, nums, label


class Batches:
    def __init__(self, data, size, shuffle):
        self.data, self.size, self.shuffle = data, size, shuffle
        self.rows = len(data[0])

    def __len__(self):
        return self.rows // self.size if self.shuffle else -(-self.rows // self.size)

    def __iter__(self):
        order = torch.randperm(self.rows) if self.shuffle else torch.arange(self.rows)
        for i in range(len(self)):
            index = order[i * self.size:(i + 1) * self.size]
            weight = torch.ones(self.size)
            if len(index) < self.size:
                weight[len(index):] = 0.0
                index = F.pad(index, (0, self.size - len(index)))
            yield [t[index] for t in self.data] + [weight]


class TabularNet(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(c, 8) for c in CARDINALITIES)
        self.norm = nn.BatchNorm1d(NUMERIC)
        self.body = nn.Sequential(nn.Linear(8 * len(CARDINALITIES) + NUMERIC, width), nn.ReLU(),
                                  nn.Dropout(dropout), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, cats, nums):
        parts = [t(cats[:, i]) for i, t in enumerate(self.tables)] + [self.norm(nums)]
        return self.body(torch.cat(parts, 1)).squeeze(1)


def validate(model, batches, device):
    model.eval()
    right = torch.zeros((), device=device)
    seen = torch.zeros((), device=device)
    with torch.no_grad():
        for cats, nums, label, weight in batches:
            logit = model(cats.to(device), nums.to(device))
            weight = weight.to(device)
            right += (((logit > 0).float() == label.to(device)).float() * weight).sum()
            seen += weight.sum()
            xm.mark_step()
    model.train()
    return right.item() / seen.item()


def save_best(model, score, best, folder):
    if score > best:
        state = {k: v.cpu() for k, v in model.state_dict().items()}
        torch.save(state, os.path.join(folder, "best.pt"))
        return score
    return best


def main():
    torch.manual_seed(11)
    device = torch.device("xla")
    train = Batches(synth(CONFIG["rows"], 1), CONFIG["batch"], True)
    valid = Batches(synth(1000, 2), CONFIG["batch"], False)
    model = TabularNet(CONFIG["width"], CONFIG["dropout"]).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=CONFIG["lr"])
    total = CONFIG["epochs"] * len(train)
    schedule = torch.optim.lr_scheduler.SequentialLR(opt, [
        torch.optim.lr_scheduler.LinearLR(opt, 0.05, 1.0, CONFIG["warmup"]),
        torch.optim.lr_scheduler.CosineAnnealingLR(opt, total - CONFIG["warmup"])], [CONFIG["warmup"]])
    step, best = 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(CONFIG["epochs"]):
            for cats, nums, label, _ in train:
                loss = F.binary_cross_entropy_with_logits(model(cats.to(device), nums.to(device)), label.to(device))
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), CONFIG["clip"])
                opt.step()
                schedule.step()
                xm.mark_step()
                step += 1
                if step % CONFIG["log_every"] == 0:
                    print(f"step {step} lr {schedule.get_last_lr()[0]:.5f} loss {loss.item():.4f}")
            score = validate(model, valid, device)
            best = save_best(model, score, best, folder)
            print(f"epoch {epoch} accuracy {score:.3f} best {best:.3f}")


if __name__ == "__main__":
    main()
