"""Hugging Face's libraries find ``torch_xla``, and train and generate on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import xlaprof.torch_xla

assert xlaprof.torch_xla


def test_transformers_and_accelerate_say_that_it_is_there() -> None:
    from transformers.utils import is_torch_xla_available

    assert is_torch_xla_available()
    assert not is_torch_xla_available(check_is_tpu=True)


TRAINER = """
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

class Tokens(Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, i):
        tokens = torch.randint(0, 60, (8,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": tokens, "labels": tokens}

torch.manual_seed(0)
none = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None)
model = GPT2LMHeadModel(GPT2Config(vocab_size=60, n_positions=16, n_embd=16, n_layer=1, n_head=2, **none))
args = TrainingArguments(
    output_dir="out", per_device_train_batch_size=4, max_steps=6, logging_steps=6, save_steps=3, report_to=[],
    disable_tqdm=True, learning_rate=1e-2, data_seed=0, dataloader_pin_memory=False,
)
trainer = Trainer(model=model, args=args, train_dataset=Tokens())
result = trainer.train()
trainer.save_model("final")
print("loss", round(result.training_loss, 4), next(model.parameters()).device)
again = GPT2LMHeadModel.from_pretrained("final").to(model.device)
with torch.no_grad():
    tokens = torch.tensor([[1, 2, 3]], device=model.device)
    print("tokens", again.eval().generate(
        tokens, max_new_tokens=4, do_sample=False, cache_implementation="static", pad_token_id=0).tolist())
"""


@pytest.mark.slow
def test_trainer_trains_saves_and_generates_as_on_the_cpu(tmp_path: Path) -> None:
    said = {}
    for device, command in (("xla:0", ["-m", "xlaprof", "run", "--no-report", "train.py"]), ("cpu", ["train.py"])):
        folder = tmp_path / device
        folder.mkdir()
        (folder / "train.py").write_text(TRAINER)
        done = subprocess.run(
            [sys.executable, *command],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        lines = [line for line in done.stdout.splitlines() if line.startswith(("loss", "tokens"))]
        assert lines[0].endswith(device)
        said[device] = [float(lines[0].split()[1]), lines[1]]
    assert said["xla:0"][0] == pytest.approx(said["cpu"][0], abs=2e-3)
    assert said["xla:0"][1] == said["cpu"][1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_accelerate_prepares_a_loop_for_the_device() -> None:
    from accelerate import Accelerator
    from accelerate.utils import DistributedType

    accelerator = Accelerator()
    assert (str(accelerator.device), accelerator.distributed_type) == ("xla:0", DistributedType.XLA)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 2)), batch_size=2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for _ in range(2):
        for (x,) in loader:
            assert str(x.device) == "xla:0"
            optimizer.zero_grad()
            loss = (model(x) - 3).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            losses.append(accelerator.gather(loss.detach()).mean().item())
    assert losses[-1] < losses[0]
