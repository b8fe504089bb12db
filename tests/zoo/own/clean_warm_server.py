"""A server warms up its two batch sizes, pads each request to one of them and sends the answers down, one copy each."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
g = torch.Generator().manual_seed(13)
SIZES = (4, 16)
model = nn.Sequential(nn.Linear(40, 80), nn.GELU(), nn.Linear(80, 6)).to(device).eval()


@torch.inference_mode()
def answer(images):
    count = len(images)
    size = next(size for size in SIZES if size >= count)
    scores = model(F.pad(images, (0, 0, 0, size - count)).to(device)).softmax(-1)
    torch_xla.sync()
    return scores


for size in SIZES:
    answer(torch.zeros(size, 40))
answers = []
for request in range(40):
    count = int(torch.randint(1, 17, (), generator=g))
    answers.append((answer(torch.randn(count, 40, generator=g)), count))
print("first", round(answers[0][0].max().item(), 3), "of", sum(count for _, count in answers))
