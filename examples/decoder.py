"""Train a small language model on the ``xla`` device. It learns, but slower than it could.

    python examples/decoder.py --record run.log && xlaprof report run.log

says why and on which lines. ``decoder_fixed.py`` is the same training without these mistakes.
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
    loader = DataLoader(passages(text), batch_size=BATCH, shuffle=True)

    losses: list[float] = []
    radii: list[torch.Tensor] = []
    while len(losses) < steps:
        for batch in loader:
            with xlaprof.StepTrace("train", step_num=len(losses)):
                with xlaprof.Trace("tokenize"):
                    tokens = torch.tensor([tokenizer.encode(passage)[: LENGTH + 1] for passage in batch]).to(device)
                logits = model(tokens[:, :-1])
                loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                barrier(device)
                losses.append(loss.item())
                # Watch the spectral radius: a growing one is the first sign of a diverging run.
                radii.append(torch.linalg.eigvals(model.blocks[0].attention.out.weight.detach()).abs().max())
            if len(losses) == steps:
                break
    print(f"{steps} steps on {device.type}: loss {losses[0]:.3f} -> {losses[-1]:.3f}, spectral radius {radii[-1]:.3f}")
    return losses


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
