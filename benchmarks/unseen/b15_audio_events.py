"""Audio event tagging: waveforms are augmented and turned into band energies while training goes on."""
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_xla

FRAMES, HOP, BANDS, TAGS, BATCH, STEPS = 16, 40, 12, 5, 8, 40


def synth(rng, tag):
    freq = 0.02 * (tag + 1) + rng.uniform(-0.004, 0.004)
    return [math.sin(6.283 * freq * n) + rng.gauss(0, 0.1) for n in range(FRAMES * HOP)]


def augment(rng, wave):
    gain = rng.uniform(0.5, 1.5)
    shift = rng.randrange(len(wave))
    return [gain * s for s in wave[shift:] + wave[:shift]]


def band_energies(wave):
    """Goertzel filters, frame by frame."""
    rows = []
    for f in range(FRAMES):
        frame = wave[f * HOP:(f + 1) * HOP]
        row = []
        for b in range(BANDS):
            c = 2 * math.cos(6.283 * (b + 1) / (2 * BANDS + 2))
            s1 = s2 = 0.0
            for v in frame:
                s1, s2 = v + c * s1 - s2, s1
            row.append(math.log(s1 * s1 + s2 * s2 - c * s1 * s2 + 1e-4))
        rows.append(row)
    return rows


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(FRAMES * BANDS, 64)
        self.second = nn.Linear(64, 32)
        self.out = nn.Linear(32, TAGS)

    def forward(self, x):
        h = F.relu(self.first(x.flatten(1)))
        return self.out(F.relu(self.second(h)))


class ActivationStats:
    def __init__(self, model):
        self.seen = {}
        for name, layer in model.named_children():
            layer.register_forward_hook(self.hook(name))

    def hook(self, name):
        def record(module, args, output):
            self.seen.setdefault(name, []).append(output.detach())
        return record

    def summary(self):
        return {name: round(float(torch.stack(v[-5:]).std()), 3) for name, v in self.seen.items()}


def make_batch(rng, waves):
    picks = [rng.randrange(len(waves)) for _ in range(BATCH)]
    feats = [band_energies(augment(rng, waves[i][0])) for i in picks]
    return torch.tensor(feats), torch.tensor([waves[i][1] for i in picks])


def main():
    rng = random.Random(0)
    torch.manual_seed(0)
    device = torch_xla.device()
    waves = [(synth(rng, t % TAGS), t % TAGS) for t in range(30)]
    model = Tagger().to(device)
    stats = ActivationStats(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        x, y = make_batch(rng, waves)
        x, y = x.to(device), y.to(device)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        torch_xla.sync()
        if (step + 1) % 20 == 0:
            print(f"step {step + 1} loss {loss.item():.3f}")
    print("activations", stats.summary())


if __name__ == "__main__":
    main()
