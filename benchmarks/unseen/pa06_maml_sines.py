"""First-order meta learning on sine waves (Reptile), with early stopping of the inner loop."""
import torch_xla
import argparse
import math
from collections import OrderedDict

import torch
import torch.nn.functional as F
import torch_xla.core.xla_model as xm


class SineTasks:
    def __init__(self, seed, shots):
        self.gen, self.shots = torch.Generator().manual_seed(seed), shots

    def draw(self):
        amp = 0.5 + 2.0 * torch.rand(1, generator=self.gen)
        phase = math.pi * torch.rand(1, generator=self.gen)
        x = 10 * torch.rand(2 * self.shots, 1, generator=self.gen) - 5
        y = amp * torch.sin(x + phase)
        return (x[:self.shots], y[:self.shots]), (x[self.shots:], y[self.shots:])


def initial_weights(device, width=40):
    gen = torch.Generator().manual_seed(0)
    shapes = OrderedDict(w1=(width, 1), b1=(width,), w2=(width, width), b2=(width,), w3=(1, width), b3=(1,))
    out = OrderedDict()
    for name, shape in shapes.items():
        value = torch.randn(shape, generator=gen) / math.sqrt(shape[-1]) if len(shape) > 1 else torch.zeros(shape)
        out[name] = value.to(device)
    return out


def network(w, x):
    h = torch.relu(F.linear(x, w["w1"], w["b1"]))
    h = torch.relu(F.linear(h, w["w2"], w["b2"]))
    return F.linear(h, w["w3"], w["b3"])


class InnerLoop:
    """Plain gradient descent on the support set until it fits well enough."""

    def __init__(self, lr, max_steps, tolerance):
        self.lr, self.max_steps, self.tolerance = lr, max_steps, tolerance
        self.used = []

    def adapt(self, weights, x, y):
        w = OrderedDict((k, v.detach().requires_grad_()) for k, v in weights.items())
        steps = 0
        while steps < self.max_steps:
            loss = F.mse_loss(network(w, x), y)
            if loss < self.tolerance:
                break
            grads = torch.autograd.grad(loss, list(w.values()))
            w = OrderedDict((k, (v - self.lr * g).detach().requires_grad_()) for (k, v), g in zip(w.items(), grads))
            steps += 1
        self.used.append(steps)
        return w


class Reptile:
    def __init__(self, weights, inner, outer_lr, total):
        self.weights, self.inner, self.outer_lr, self.total = weights, inner, outer_lr, total
        self.done = 0

    def update(self, tasks, device):
        delta = None
        for (x, y), _ in tasks:
            adapted = self.inner.adapt(self.weights, x.to(device), y.to(device))
            moved = [a.detach() - w for a, w in zip(adapted.values(), self.weights.values())]
            delta = moved if delta is None else [d + m for d, m in zip(delta, moved)]
        rate = torch.tensor(self.outer_lr * (1 - self.done / self.total)).to(device)
        for (name, w), d in zip(list(self.weights.items()), delta):
            self.weights[name] = w + rate * d / len(tasks)
        self.done += 1
        xm.mark_step()


def meta_test(weights, source, inner, tasks, device):
    total = torch.zeros((), device=device)
    for _ in range(tasks):
        (xs, ys), (xq, yq) = source.draw()
        w = inner.adapt(weights, xs.to(device), ys.to(device))
        total += F.mse_loss(network(w, xq.to(device)), yq.to(device)).detach()
        xm.mark_step()
    return total.item() / tasks


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--iterations", type=int, default=60)
    ap.add_argument("--meta-batch", type=int, default=3)
    ap.add_argument("--inner-steps", type=int, default=5)
    ap.add_argument("--inner-lr", type=float, default=0.02)
    ap.add_argument("--tolerance", type=float, default=1e-4)
    ap.add_argument("--shots", type=int, default=10)
    args = ap.parse_args()
    device = xm.xla_device()
    train, test = SineTasks(1, args.shots), SineTasks(2, args.shots)
    inner = InnerLoop(args.inner_lr, args.inner_steps, args.tolerance)
    learner = Reptile(initial_weights(device), inner, outer_lr=0.5, total=args.iterations)
    for it in range(1, args.iterations + 1):
        learner.update([train.draw() for _ in range(args.meta_batch)], device)
        if it % 30 == 0:
            error = meta_test(learner.weights, test, inner, 4, device)
            print(f"iteration {it}: query mse {error:.3f}, inner steps {sum(inner.used) / len(inner.used):.1f}")


if __name__ == "__main__":
    main()
