import torch
import torch.nn as nn
import torch.nn.functional as F


class Clips:
    """Blobs that move over a noisy field; the target is the position of the first one."""

    def __init__(self, frames, size, seed):
        self.frames, self.size = frames, size
        self.g = torch.Generator().manual_seed(seed)

    def draw(self, n):
        start = 0.2 + 0.6 * torch.rand(n, 2, 2, generator=self.g)
        speed = 0.02 * torch.randn(n, 2, 2, generator=self.g)
        t = torch.arange(self.frames).float().view(1, -1, 1, 1)
        path = (start.unsqueeze(1) + speed.unsqueeze(1) * t).clamp(0, 1)
        grid = torch.linspace(0, 1, self.size)
        dx = grid.view(1, 1, 1, 1, -1) - path[..., 0, None, None]
        dy = grid.view(1, 1, 1, -1, 1) - path[..., 1, None, None]
        blobs = torch.exp(-(dx.square() + dy.square()) / 0.01)
        video = blobs[:, :, 0] + 0.5 * blobs[:, :, 1] + 0.1 * torch.randn(n, self.frames, self.size, self.size,
                                                                       generator=self.g)
        return video.unsqueeze(2), path[:, :, 0]


class MemoryTracker(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(1, 12, 3, 2, 1), nn.ReLU(), nn.Conv2d(12, dim, 3, 2, 1), nn.ReLU(),
                                      nn.Flatten(), nn.Linear(dim * 16, dim))
        self.query, self.key, self.value = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.box = nn.Sequential(nn.Linear(2 * dim, dim), nn.ReLU(), nn.Linear(dim, 2))

    def forward(self, frame, memory):
        now = self.backbone(frame)
        bank = torch.stack(memory + [now], 1)
        weight = (self.query(now).unsqueeze(1) * self.key(bank)).sum(-1, keepdim=True).softmax(1)
        context = (weight * self.value(bank)).sum(1)
        return self.box(torch.cat([now, context], -1)).sigmoid(), now


class Session:
    def __init__(self, model, backend="aot_eager"):
        self.step = torch.compile(model, backend=backend)

    def track(self, video):
        memory, positions = [], []
        for frame in video.unbind(1):
            where, feature = self.step(frame, memory)
            memory.append(feature.detach())
            positions.append(where)
        return torch.stack(positions, 1)


def precision(found, truth, radius=0.1):
    return ((found - truth).norm(dim=-1) < radius).float().mean().item()


def train(model, session, clips, opt, steps, size):
    for step in range(1, steps + 1):
        video, path = clips.draw(size)
        loss = F.smooth_l1_loss(session.track(video), path, beta=0.05)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0:
            yield step, loss.item()


def main(frames=20, size=8, steps=100):
    torch.manual_seed(3)
    clips, held_out = Clips(frames, 16, 1), Clips(frames, 16, 2)
    model = MemoryTracker()
    session = Session(model)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step, loss in train(model, session, clips, opt, steps, size):
        model.eval()
        with torch.no_grad():
            video, path = held_out.draw(16)
            found = session.track(video)
        model.train()
        print(f"step {step} loss {loss:.4f} precision {precision(found, path):.3f}")


if __name__ == "__main__":
    main()
