"""A compiled loss takes a list of predictions, one for each head that is switched on."""
import torch
import torch.nn.functional as F


def total_loss(predictions, target):
    loss = torch.zeros(())
    for p in predictions:
        loss = loss + F.mse_loss(p, target)
    return loss


fast = torch.compile(total_loss, backend="aot_eager")
torch.manual_seed(0)
target = torch.randn(8, 4)
running = 0.0
for step in range(9):
    heads = 1 + step // 3
    predictions = [torch.randn(8, 4) for _ in range(heads)]
    running += float(fast(predictions, target))
print(round(running, 3))
