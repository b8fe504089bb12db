"""Pretrains an autoencoder, then trains a classifier on its frozen encoder: two loops, two graphs."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
encoder = nn.Sequential(nn.Linear(20, 8), nn.Tanh()).to(device)
decoder = nn.Linear(8, 20).to(device)
classifier = nn.Linear(8, 3).to(device)
g = torch.Generator().manual_seed(1)


def batch():
    x = torch.randn(16, 20, generator=g)
    return x.to(device), x[:, :3].argmax(1).to(device)


def pretrain(steps):
    opt = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
    for _ in range(steps):
        x, _ = batch()
        opt.zero_grad()
        loss = F.mse_loss(decoder(encoder(x)), x)
        loss.backward()
        opt.step()
        torch_xla.sync()
    return loss


def finetune(steps):
    encoder.requires_grad_(False)
    opt = torch.optim.SGD(classifier.parameters(), lr=0.3)
    for _ in range(steps):
        x, y = batch()
        opt.zero_grad()
        loss = F.cross_entropy(classifier(encoder(x)), y)
        loss.backward()
        opt.step()
        torch_xla.sync()
    return loss


torch_xla.sync()
print("reconstruction", round(pretrain(12).item(), 3))
print("classification", round(finetune(12).item(), 3))
