"""Online load forecasting: the model adapts to every new observation and logs its error."""
import collections
import math

import torch
import torch.nn as nn

import torch_xla

HORIZON, WINDOW, STEPS = 4, 12, 12


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(WINDOW, 16)
        self.out = nn.Linear(16, HORIZON)

    def forward(self, x):
        return self.out(torch.tanh(self.hidden(x)))


def stream(steps):
    series = [math.sin(i / 3) + 0.1 * math.cos(i) for i in range(steps + WINDOW + HORIZON)]
    for i in range(steps):
        past = torch.tensor(series[i:i + WINDOW])
        future = torch.tensor(series[i + WINDOW:i + WINDOW + HORIZON])
        yield past[None], future[None]


class ErrorLog:
    def __init__(self, window=4):
        self.values = collections.deque(maxlen=window)
        self.best = float("inf")

    def push(self, error):
        value = float(error)
        self.values.append(value)
        self.best = min(self.best, value)
        return sum(self.values) / len(self.values)


def main():
    torch.manual_seed(0)
    device = torch_xla.device()
    model = Forecaster().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch_xla.sync()
    errors = ErrorLog()
    for step, (past, future) in enumerate(stream(STEPS)):
        past, future = past.to(device), future.to(device)
        error = (model(past) - future).square().mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        average = errors.push(error.detach())
        if (step + 1) % 4 == 0:
            print(f"{step + 1}: average error {average:.4f}, best {errors.best:.4f}")


if __name__ == "__main__":
    main()
