"""A compiled transformer's training step, fed from the device, whose loss is logged each tenth turn."""

import torch
from measured import measured
from torch import nn

layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True, norm_first=True)
model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
x = torch.randn(32, 512, 512, device="cuda")


@torch.compile
def loss_of(x):
    return (model(x) - x).square().mean()


def train(turns):
    for turn in range(turns):
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if turn % 10 == 9:
            print(loss.item())


train(3)
with measured() as truth:
    train(60)
