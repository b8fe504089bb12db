"""A compiled function takes the number of columns to use as a Python int, which grows."""
import torch


def summarise(x, mask):
    return (torch.tanh(x) * mask).sum(1)


fast = torch.compile(summarise, backend="aot_eager", dynamic=False)
torch.manual_seed(0)
x = torch.randn(16, 12)
total = torch.zeros(16)
for columns in [6, 6, 8, 8, 10, 10, 10]:
    total = total + fast(x, (torch.arange(12) < columns).float())
print(total.shape)
