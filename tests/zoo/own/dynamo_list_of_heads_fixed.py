"""A compiled loss takes a list of predictions, one for each head that is switched on."""
import torch
import torch.nn.functional as F


def total_loss(predictions, on, target):
    errors = F.mse_loss(predictions, target.expand_as(predictions), reduction="none").mean((1, 2))
    return (errors * on).sum()


fast = torch.compile(total_loss, backend="aot_eager")
torch.manual_seed(0)
target = torch.randn(8, 4)
running = 0.0
for step in range(9):
    heads = 1 + step // 3
    predictions = torch.randn(3, 8, 4)
    running += float(fast(predictions, (torch.arange(3) < heads).float(), target))
print(round(running, 3))
