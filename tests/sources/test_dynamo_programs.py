"""Larger programs of which is known what ``torch.compile`` makes of them: generation, and two ranks of DDP."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.sources.observed import Counts, Observed
from xlaprof.events import DynamoCompile, GraphBreak, Recompile

pytestmark = pytest.mark.slow


def run(script: str, folder: Path, *, log: str = "run.log", **environment: str) -> subprocess.Popen[str]:
    path = folder / "program.py"
    path.write_text(textwrap.dedent(script))
    return subprocess.Popen(
        [sys.executable, "-m", "xlaprof", "run", "--no-report", "-o", str(folder / log), str(path)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


LLAMA = """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=128,
    )
    model = LlamaForCausalLM(config).eval()
    model.forward = torch.compile(model.forward, backend="eager")
    for length in (5, 9):
        prompt = torch.randint(0, 64, (1, length))
        mask = torch.ones_like(prompt)
        model.generate(prompt, attention_mask=mask, max_new_tokens=5, do_sample=False, pad_token_id=0)
"""


def test_llama_generates(tmp_path: Path) -> None:
    program = run(LLAMA, tmp_path, TRANSFORMERS_OFFLINE="1", HF_HUB_OFFLINE="1")
    reported, _ = program.communicate()
    assert program.returncode == 0, reported
    found = Observed(tmp_path / "run.log")
    assert found.counts == Counts(compiles=4, graphs=4, breaks=0, recompiles=3)
    generate = 1 + textwrap.dedent(LLAMA).splitlines().index(
        "    model.generate(prompt, attention_mask=mask, max_new_tokens=5, do_sample=False, pad_token_id=0)"
    )
    assert {found.line(event.stack) for event in found.of(DynamoCompile)} == {generate}, "not transformers' own line"
    assert all(guards and guards[0].old and guards[0].new for guards in (e.guards for e in found.of(Recompile)))
    assert {finding.kind for finding in found.findings()} == {"recompile"}
    assert sum(finding.count for finding in found.findings()) == 3


DDP = """
    import os

    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    model = torch.compile(DistributedDataParallel(layers), backend="eager")
    for size in (4, 4):
        model(torch.randn(size, 8)).sum().backward()
    dist.destroy_process_group()
"""


def test_ddp_captures_nothing_and_that_is_said(tmp_path: Path) -> None:
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533", "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    ranks = [run(DDP, tmp_path, RANK=str(rank), LOCAL_RANK=str(rank), **shared) for rank in range(2)]
    reported = [rank.communicate()[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], reported
    for rank in range(2):
        found = Observed(tmp_path / f"run.rank{rank}.log")
        assert found.counts == Counts(compiles=4, graphs=0, breaks=3)
        assert all(event.at for event in found.of(GraphBreak)), "each in PyTorch's own code"
        (nothing,) = found.findings()
        assert nothing.kind == "graph_break"
        assert "captured 0 operations" in nothing.cause
        assert "model(torch.randn" in nothing.place.code
        assert len(nothing.evidence) == 2
