"""A decorator that times and logs is kept off the methods of a compiled model."""
import functools
import logging
import time
import torch
import torch.nn as nn

log = logging.getLogger("model")


def timed(method):
    @functools.wraps(method)
    def wrapper(self, *args):
        started = time.perf_counter()
        out = method(self, *args)
        log.warning("%s took %.1f ms", method.__name__, 1e3 * (time.perf_counter() - started))
        return out
    return wrapper


class Encoder(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def mlp(self, x):
        return self.down(torch.relu(self.up(x)))

    def forward(self, x):
        x = torch.tanh(x)
        x = x + self.mlp(x)
        return x.softmax(-1)


log.addHandler(logging.NullHandler())
log.propagate = False
torch.manual_seed(0)
model = torch.compile(Encoder().eval(), backend="aot_eager")
with torch.no_grad():
    for _ in range(6):
        y = model(torch.randn(4, 16))
print(y.shape)
