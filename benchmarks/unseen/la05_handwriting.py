"""Line recognition for synthetic pen strokes: a small CRNN-like net trained with CTC."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

ALPHABET = "-abcdefghij"
BLANK = 0
HEIGHT, GLYPH_WIDTH, WORD = 12, 10, 5
WIDTH = 64
BATCH = 16
ITERATIONS = 120
EVAL_EVERY = 40
EVAL_LINES = 14


class StrokeWriter:
    """Draws words: each letter is a fixed stroke, slanted, shifted and with ink noise."""

    def __init__(self, rng):
        self.rng = rng
        self.glyphs = np.zeros((len(ALPHABET), HEIGHT, GLYPH_WIDTH), np.float32)
        t = np.linspace(0, 1, 60)
        for g in range(1, len(ALPHABET)):
            ax, ay, phase = rng.uniform(1, 3), rng.uniform(1, 3), rng.uniform(0, 6.28)
            xs = (GLYPH_WIDTH - 3) * (0.5 + 0.5 * np.sin(2 * np.pi * ax * t + phase)) + 1
            ys = (HEIGHT - 3) * (0.5 + 0.5 * np.cos(2 * np.pi * ay * t)) + 1
            self.glyphs[g, ys.astype(int), xs.astype(int)] = 1.0

    def lines(self, n):
        words = self.rng.integers(1, len(ALPHABET), (n, WORD))
        images = self.rng.normal(scale=0.15, size=(n, 1, HEIGHT, WIDTH)).astype(np.float32)
        for i, word in enumerate(words):
            x = int(self.rng.integers(0, 4))
            for letter in word:
                images[i, 0, :, x:x + GLYPH_WIDTH] += self.glyphs[letter]
                x += GLYPH_WIDTH + int(self.rng.integers(0, 3))
        return images, words


class Recogniser(nn.Module):
    def __init__(self, channels=24):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU())
        self.mix = nn.Sequential(
            nn.Conv1d(2 * channels * HEIGHT // 2, 64, 5, padding=2), nn.ReLU(),
            nn.Conv1d(64, 64, 5, padding=2), nn.ReLU())
        self.head = nn.Linear(64, len(ALPHABET))

    def forward(self, images):
        x = self.stem(images).flatten(1, 2)
        return self.head(self.mix(x).transpose(1, 2)).log_softmax(-1)  # (batch, time, letters)


def greedy_text(best):
    """Collapses repeats and drops blanks along one line's best path."""
    text, previous = [], BLANK
    for t in range(best.shape[0]):
        letter = int(best[t])
        if letter != previous and letter != BLANK:
            text.append(ALPHABET[letter])
        previous = letter
    return "".join(text)


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, cb in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (ca != cb))
    return row[-1]


@torch.no_grad()
def character_error_rate(model, images, words, device):
    model.eval()
    best_paths = model(torch.from_numpy(images).to(device)).argmax(-1)
    xm.mark_step()
    errors = 0
    for path, word in zip(best_paths, words):
        truth = "".join(ALPHABET[c] for c in word)
        errors += edit_distance(greedy_text(path), truth)
    model.train()
    return errors / words.size


def main():
    rng = np.random.default_rng(8)
    torch.manual_seed(8)
    device = torch_xla.device()
    writer = StrokeWriter(rng)
    eval_images, eval_words = writer.lines(EVAL_LINES)
    model = Recogniser().to(device)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    frames = torch.full((BATCH,), WIDTH // 2, dtype=torch.long)
    letters = torch.full((BATCH,), WORD, dtype=torch.long)

    losses = []
    for it in range(1, ITERATIONS + 1):
        images, words = writer.lines(BATCH)
        images = torch.from_numpy(images).to(device)
        words = torch.from_numpy(words.astype(np.int64)).to(device)
        opt.zero_grad()
        log_probs = model(images).transpose(0, 1)
        loss = F.ctc_loss(log_probs, words, frames, letters, blank=BLANK)
        loss.backward()
        xm.optimizer_step(opt)
        losses.append(loss.detach())
        xm.mark_step()
        if it % EVAL_EVERY == 0:
            cer = character_error_rate(model, eval_images, eval_words, device)
            recent = torch.stack(losses[-EVAL_EVERY:]).mean().item()
            print(f"iteration {it}: loss {recent:.3f} CER {cer:.3f}")


if __name__ == "__main__":
    main()
