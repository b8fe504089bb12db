"""A world model is trained on rollouts whose horizon grows with the epoch."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
g = torch.Generator().manual_seed(11)
dynamics = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 6)).to(device)
opt = torch.optim.SGD(dynamics.parameters(), lr=0.01)
rotation = torch.linalg.qr(torch.randn(6, 6, generator=g))[0]


def trajectories(horizon):
    states = [torch.randn(8, 6, generator=g)]
    for _ in range(7):
        states.append(states[-1] @ rotation)
    return torch.stack(states).to(device)


torch_xla.sync()
for epoch in range(6):
    horizon = epoch + 1
    for batch in range(6):
        states = trajectories(horizon)
        opt.zero_grad()
        state, loss = states[0], 0.0
        for t in range(horizon):
            state = state + dynamics(state)
            loss = loss + F.mse_loss(state, states[t + 1])
        loss.backward()
        opt.step()
        torch_xla.sync()
print("loss", round(loss.item(), 3))
