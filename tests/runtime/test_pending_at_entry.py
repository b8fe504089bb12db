"""What is pending where a compiled function is called is a graph of its own, and no version of the function's."""

from __future__ import annotations

from pathlib import Path

import torch

import xlaprof.runtime as xr
from tests.advice.taken import findings, observe
from xlaprof import events


def test_the_first_graph_of_a_compiled_function_is_not_another_path_of_what_was_pending_before(tmp_path: Path) -> None:
    """An autoencoder learns to remove noise, which is added on the device just before its step."""
    images = torch.rand(64, 12, generator=torch.Generator().manual_seed(6))

    def denoise() -> None:
        clean = images.to("xla")
        model = torch.nn.Sequential(torch.nn.Linear(12, 5), torch.nn.Tanh(), torch.nn.Linear(5, 12)).to("xla")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def learn(noisy: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = (model(noisy) - clean).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = xr.compile(learn, full_graph=True)
        for turn in range(14):
            noise = (torch.randn(64, 12, generator=torch.Generator().manual_seed(turn)) * 0.1).to("xla")
            step(clean + noise)

    recorded = observe(denoise, tmp_path / "run.log")
    triggers = [one.trigger for one in recorded.of(events.Compile)]
    assert triggers.index("clear_pending") < triggers.index("compile"), "both end at one line"
    assert [one.cause for one in findings(recorded.events) if one.kind == "recompile"] == []
