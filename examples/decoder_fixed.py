"""Train a small language model on the ``xla`` device: ``decoder.py`` without its four mistakes.

1. The last, smaller batch of an epoch is dropped: every step has the shapes of the first, and one graph.
2. Losses stay on the device until training is over: no step waits for its own.
3. The text is tokenized once, before training, not again for every batch.
4. The spectral radius comes from matrix products, which run on the device, not from eigenvalues, which do not.
"""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

import torch
import torch.nn.functional as F
from model import Decoder
from tokenizer import Tokenizer
from torch.utils.data import DataLoader

import xlaprof

LENGTH = 96  # tokens per example
BATCH = 8


def passages(text: str, characters: int = 300, stride: int = 64) -> list[str]:
    """Overlapping pieces of the text."""
    return [text[i : i + characters] for i in range(0, len(text) - characters, stride)]


def train(steps: int, device: torch.device, seed: int = 0) -> list[float]:
    """Train for ``steps`` steps and return their losses."""
    text = (Path(__file__).parent / "text.txt").read_text()
    tokenizer = Tokenizer(text)
    torch.manual_seed(seed)
    model = Decoder(tokenizer.vocabulary, LENGTH).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    examples = torch.tensor([tokenizer.encode(passage)[: LENGTH + 1] for passage in passages(text)])
    loader = DataLoader(examples, batch_size=BATCH, shuffle=True, drop_last=True)

    losses: list[torch.Tensor] = []
    radii: list[torch.Tensor] = []
    while len(losses) < steps:
        for batch in loader:
            with xlaprof.StepTrace("train", step_num=len(losses)):
                tokens = batch.to(device)
                logits = model(tokens[:, :-1])
                loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
                # Watch the spectral radius: a growing one is the first sign of a diverging run.
                radii.append(spectral_radius(model.blocks[0].attention.out.weight))
                barrier(device)
            if len(losses) == steps:
                break
    values = torch.stack(losses).tolist()
    print(f"{steps} steps on {device.type}: loss {values[0]:.3f} -> {values[-1]:.3f}, spectral radius {radii[-1]:.3f}")
    return values


def spectral_radius(matrix: torch.Tensor, squarings: int = 8) -> torch.Tensor:
    """The largest absolute eigenvalue, by Gelfand's formula ``lim |A^k|^(1/k)`` with ``k = 2 ** squarings``."""
    power, log_norm = matrix.detach(), torch.zeros((), device=matrix.device)
    for _ in range(squarings):
        norm = torch.linalg.matrix_norm(power)
        # A^k = exp(log_norm) * power, kept near 1: squaring would soon leave what a float can hold.
        power, log_norm = (power / norm) @ (power / norm), 2 * (log_norm + norm.log())
    return ((log_norm + torch.linalg.matrix_norm(power).log()) / 2**squarings).exp()


def barrier(device: torch.device) -> None:
    """The end of a step's graph, where there is one."""
    if device.type == "xla":
        import xlaprof.runtime as xr

        xr.sync()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--device", choices=["xla", "cpu"], default="xla")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", metavar="LOG", help="record the run")
    args = parser.parse_args()
    torch.set_num_threads(1)  # XLA computes: threads of torch's own would only be in its way
    if args.device == "xla":
        import xlaprof.runtime as xr

        device = xr.device()
    else:
        device = torch.device("cpu")
    with xlaprof.record(args.record) if args.record else contextlib.nullcontext():
        train(args.steps, device, args.seed)


if __name__ == "__main__":
    main()
