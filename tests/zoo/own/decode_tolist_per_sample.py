"""Captioning: greedy decoding of a batch, then each caption is turned into words one by one."""
import torch
import torch.nn as nn
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
WORDS = [f"w{i}" for i in range(40)]


class Captioner(nn.Module):
    def __init__(self, d=16, length=6):
        super().__init__()
        self.length = length
        self.img = nn.Linear(20, d)
        self.cell = nn.GRUCell(d, d)
        self.out = nn.Linear(d, 40)

    def forward(self, image):
        h, tokens = self.img(image), []
        for _ in range(self.length):
            h = self.cell(h, h)
            tokens.append(self.out(h).argmax(-1))
        return torch.stack(tokens, 1)


model = Captioner().to(device).eval()
g = torch.Generator().manual_seed(2)
captions = []
torch_xla.sync()
with torch.no_grad():
    for batch in range(6):
        tokens = model(torch.randn(8, 20, generator=g).to(device))
        torch_xla.sync()
        for row in range(8):
            captions.append(" ".join(WORDS[i] for i in tokens[row].tolist()))
print(len(captions), "captions,", captions[0])
