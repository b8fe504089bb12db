"""Knowledge distillation of a small student; monitors the spectrum of its recurrent map."""
import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_xla

CLASSES, DIM, WIDTH, STEPS, WARMUP, BATCH = 8, 12, 16, 40, 15, 32


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(DIM, WIDTH)
        self.rec = nn.Linear(WIDTH, WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        h = torch.tanh(self.inp(x))
        for _ in range(2):
            h = torch.tanh(self.inp(x) + self.rec(h))
        return self.out(h)


def teacher_net():
    net = nn.Sequential(nn.Linear(DIM, 48), nn.ReLU(), nn.Linear(48, CLASSES))
    return net.requires_grad_(False).eval()


def distill_loss(student_logits, teacher_logits, target, alpha, temperature, smoothing):
    soft = F.kl_div(F.log_softmax(student_logits / temperature, -1), F.softmax(teacher_logits / temperature, -1),
                    reduction="batchmean") * temperature ** 2
    hard = F.cross_entropy(student_logits, target, label_smoothing=smoothing)
    return alpha * soft + (1 - alpha) * hard


class SpectralMonitor:
    """Exponential average of the spectral radius, for the stability plot."""

    def __init__(self, device):
        self.radius = torch.zeros((), device=device)

    @torch.no_grad()
    def update(self, weight):
        radius = torch.linalg.eigvals(weight).abs().max()
        self.radius.mul_(0.9).add_(0.1 * radius)


def main():
    torch.manual_seed(4)
    device = torch_xla.device()
    teacher, student = teacher_net().to(device), Student().to(device)
    monitor = SpectralMonitor(device)
    opt = torch.optim.SGD(student.parameters(), lr=0.1)
    loss_avg = torch.zeros((), device=device)
    for step in range(STEPS):
        x = torch.randn(BATCH, DIM).to(device)
        y = torch.randint(0, CLASSES, (BATCH,)).to(device)
        with torch.no_grad():
            t_logits = teacher(x)
        alpha = 0.9 - 0.4 * step / STEPS
        smoothing = 0.1 if step >= WARMUP else 0.0
        loss = distill_loss(student(x), t_logits, y, alpha, 3.0, smoothing)
        opt.zero_grad()
        loss.backward()
        opt.step()
        monitor.update(student.rec.weight)
        loss_avg.mul_(0.9).add_(loss.detach(), alpha=0.1)
        torch_xla.sync()
        if (step + 1) % 20 == 0:
            print(f"step {step + 1} loss {loss_avg.item():.3f} radius {monitor.radius.item():.3f}")


if __name__ == "__main__":
    main()
