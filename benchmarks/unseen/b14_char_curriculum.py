"""Character model with a length curriculum; a sample is decoded greedily during training."""
import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_xla

TEXT = "the quick brown fox jumps over the lazy dog and runs away from the hungry bear " * 20
CHARS = sorted(set(TEXT))
INDEX = {c: i for i, c in enumerate(CHARS)}
STEPS, BATCH, DIM = 30, 8, 16


class CharModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(CHARS), DIM)
        self.mix = nn.Linear(2 * DIM, DIM)
        self.out = nn.Linear(DIM, len(CHARS))

    def forward(self, ids):
        h = self.embed(ids)
        context = h.cumsum(1) / torch.arange(1, ids.shape[1] + 1, device=ids.device)[:, None]
        return self.out(torch.tanh(self.mix(torch.cat([h, context], -1))))


class Curriculum:
    def __init__(self, start=8, increment=4, every=6):
        self.start, self.increment, self.every = start, increment, every

    def length(self, step):
        return self.start + self.increment * (step // self.every)


def sample_batch(ids, length):
    starts = torch.randint(0, len(ids) - length - 1, (BATCH,))
    block = torch.stack([ids[s:s + length + 1] for s in starts])
    return block[:, :-1].contiguous(), block[:, 1:].contiguous()


@torch.no_grad()
def decode(model, prompt, count, device):
    ids = torch.tensor([[INDEX[c] for c in prompt]]).to(device)
    for _ in range(count):
        nxt = model(ids)[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, nxt], dim=1)
        torch_xla.sync()
    return "".join(CHARS[i] for i in ids[0].tolist())


def main():
    torch.manual_seed(0)
    device = torch_xla.device()
    ids = torch.tensor([INDEX[c] for c in TEXT])
    model = CharModel().to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.5)
    curriculum = Curriculum()
    loss = None
    for step in range(STEPS):
        x, y = (t.to(device) for t in sample_batch(ids, curriculum.length(step)))
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        torch_xla.sync()
        if (step + 1) % 15 == 0:
            print(f"step {step + 1} loss {loss.item():.3f} sample {decode(model, 'the ', 10, device)!r}")


if __name__ == "__main__":
    main()
