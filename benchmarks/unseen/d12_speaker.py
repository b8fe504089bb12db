"""Speaker verification: embeddings by a prototype loss, an LDA back end, and the equal error rate on trials."""
import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

MELS = 16


class Speakers:
    """Utterances of `speakers` voices: filter-bank frames around a voice's own spectrum."""

    def __init__(self, speakers, seed):
        self.rng, self.generator = random.Random(seed), torch.Generator().manual_seed(seed)
        self.voices = torch.randn(speakers, MELS, generator=self.generator)

    def utterance(self, speaker, frames):
        noise = torch.randn(frames, MELS, generator=self.generator)
        return self.voices[speaker] + 1.5 * noise.cumsum(0) / torch.arange(1, frames + 1)[:, None].sqrt()

    def episode(self, speakers, shots, frames):
        chosen = self.rng.sample(range(len(self.voices)), speakers)
        return torch.stack([torch.stack([self.utterance(s, frames) for _ in range(shots)]) for s in chosen])


class Embedder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv1 = nn.Conv1d(MELS, 32, 5, padding=2)
        self.conv2 = nn.Conv1d(32, 32, 3, padding=1)
        self.attention = nn.Conv1d(32, 1, 1)
        self.out = nn.Linear(64, dim)

    def forward(self, x):
        x = F.relu(self.conv1(x.transpose(1, 2)))
        x = F.relu(self.conv2(x))
        w = self.attention(x).softmax(-1)
        mean = (w * x).sum(-1)
        std = ((w * x**2).sum(-1) - mean**2).clamp(min=1e-4).sqrt()
        return F.normalize(self.out(torch.cat([mean, std], 1)), dim=-1)


def prototype_loss(embedding, speakers, shots):
    e = embedding.view(speakers, shots, -1)
    prototypes, queries = e[:, 1:].mean(1), e[:, 0]
    return F.cross_entropy(10 * queries @ prototypes.T, torch.arange(speakers, device=e.device))


def fit_lda(embedding, speakers, keep):
    """Directions that separate speakers best: eigenvectors of within^-1 between."""
    e = embedding.view(speakers, -1, embedding.shape[-1])
    means = e.mean(1)
    centered = (e - means.unsqueeze(1)).flatten(0, 1)
    within = centered.T @ centered / len(centered) + 1e-3 * torch.eye(e.shape[-1], device=e.device)
    spread = means - means.mean(0)
    between = spread.T @ spread / speakers
    values, vectors = torch.linalg.eig(torch.linalg.solve(within, between))
    order = values.real.argsort(descending=True)
    return vectors.real[:, order[:keep]]


def equal_error_rate(scores, same):
    order = scores.argsort(descending=True)
    same = same[order].float()
    accepted = (1 - same).cumsum(0) / (1 - same).sum()
    missed = 1 - same.cumsum(0) / same.sum()
    best = (accepted - missed).abs().argmin()
    return (accepted[best] + missed[best]) / 2


@torch.no_grad()
def verify(model, data, device, keep=8):
    speakers, shots = 12, 8
    x = data.episode(speakers, shots, 60).flatten(0, 1).to(device)
    embedding = model(x)
    projected = F.normalize(embedding @ fit_lda(embedding, speakers, keep), dim=-1)
    label = torch.arange(speakers, device=device).repeat_interleave(shots)
    i, j = torch.triu_indices(len(x), len(x), 1, device=device)
    return equal_error_rate((projected[i] * projected[j]).sum(-1), label[i] == label[j])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--speakers", type=int, default=16)
    parser.add_argument("--shots", type=int, default=3)
    parser.add_argument("--verify-every", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch_xla.device()
    train, dev = Speakers(60, 1), Speakers(30, 2)
    model = Embedder(24).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    rates = []
    for step in range(1, args.steps + 1):
        frames = train.rng.randint(44, 56)
        x = train.episode(args.speakers, args.shots, frames).flatten(0, 1).to(device)
        loss = prototype_loss(model(x), args.speakers, args.shots)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        xm.mark_step()
        if step % args.verify_every == 0:
            rates.append(verify(model, dev, device))
            xm.mark_step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.3f} EER {torch.stack(rates[-3:]).mean().item():.3f}", flush=True)


if __name__ == "__main__":
    main()
