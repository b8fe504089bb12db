"""Image sampler whose scheduler looks up the position of the timestep with nonzero().item(), as old schedulers do."""
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()


class EulerScheduler:
    def __init__(self, steps):
        ramp = torch.linspace(1, 0, steps)
        self.sigmas = torch.cat([(0.1 + ramp * 3) ** 2, torch.zeros(1)]).tolist()
        self.schedule = (ramp * 999).round().tolist()
        self.timesteps = torch.tensor(self.schedule).to(device)

    def step(self, noise, timestep, sample):
        index = (self.timesteps == timestep).nonzero().item()
        dt = self.sigmas[index + 1] - self.sigmas[index]
        return sample + noise * dt


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Linear(1, 8)
        self.inp = nn.Conv2d(3, 8, 3, padding=1)
        self.out = nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x, t):
        h = self.inp(x) + self.time(t.reshape(1, 1) / 1000)[..., None, None]
        return self.out(torch.relu(h))


unet = UNet().to(device).eval()
scheduler = EulerScheduler(steps=12)
sample = torch.randn(2, 3, 8, 8).to(device)
xm.mark_step()
with torch.no_grad():
    for value in scheduler.schedule:
        t = torch.tensor([value]).to(device)
        noise = unet(sample, t)
        sample = scheduler.step(noise, t, sample)
        xm.mark_step()
print("image", sample.clamp(-1, 1).cpu().shape)
