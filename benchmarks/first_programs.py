"""The ten programs of ``first_step.py``: each is called with a :class:`Run`, and marks where its steps end.

They are what people write, with random weights and small sizes; what is drawn at random is drawn on the CPU, so that
every mode computes the same.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import second_start
import torch
from models import MODELS
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))


class Run(Protocol):
    """How a program runs."""

    device: torch.device
    mode: str  # "eager", "xla" or "inductor"
    count: int  # of steps
    loss: torch.Tensor  # of the last step

    def compiled(self, function: Any) -> Any:
        """A module or function, under torch.compile where the mode says so."""

    def steps(self) -> Iterator[None]:
        """Begin each step with the next element."""

    def ended(self) -> None:
        """Note the end of a step that :meth:`steps` did not begin."""


def _train(run: Run, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[Any], torch.Tensor]) -> None:
    call = run.compiled(model)
    for _ in run.steps():
        optimizer.zero_grad()
        run.loss = loss(call)
        run.loss.backward()
        optimizer.step()


def demo(run: Run) -> None:
    """The demo's decoder (examples/), Adam."""
    from model import Decoder

    model = Decoder(64, 64).to(run.device)

    def loss(call: Any) -> torch.Tensor:
        tokens = torch.randint(64, (8, 65)).to(run.device)
        return F.cross_entropy(call(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    _train(run, model, torch.optim.Adam(model.parameters(), lr=1e-3), loss)


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = (one.view(b, t, self.heads, -1).transpose(1, 2) for one in self.qkv(x).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: torch.Tensor = self.out(y.transpose(1, 2).reshape(b, t, c))
        return out


class _Gpt(nn.Module):
    def __init__(self, vocabulary: int, length: int, width: int, layers: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.attentions = nn.ModuleList(_Attention(width, 4) for _ in range(layers))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(layers)
        )
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for i, (attention, mlp) in enumerate(zip(self.attentions, self.mlps, strict=True)):
            x = x + attention(self.norms[2 * i](x))
            x = x + mlp(self.norms[2 * i + 1](x))
        logits: torch.Tensor = self.head(x)
        return logits


def nanogpt(run: Run) -> None:
    """Four layers, two micro-batches, clipped gradients, a schedule; AdamW with two groups."""
    model = _Gpt(96, 64, 64, 4).to(run.device)
    groups = [
        {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) / 100)
    call = run.compiled(model)
    for _ in run.steps():
        for _ in range(2):
            ids = torch.randint(96, (4, 65)).to(run.device)
            run.loss = F.cross_entropy(call(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()) / 2
            run.loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)


def mingpt(run: Run) -> None:
    """Three encoder layers of PyTorch's own with a causal mask, clipped gradients, AdamW."""
    width = 48
    layer: dict[str, Any] = {"dim_feedforward": 192, "dropout": 0.0, "batch_first": True, "norm_first": True}
    embedding, head = nn.Embedding(10, width), nn.Linear(width, 10)
    blocks = nn.ModuleList(nn.TransformerEncoderLayer(width, 3, **layer) for _ in range(3))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.blocks, self.head = embedding, blocks, head

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
            x = self.embedding(ids)
            for block in self.blocks:
                x = block(x, src_mask=mask)
            logits: torch.Tensor = self.head(x)
            return logits

    model = Model().to(run.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    call = run.compiled(model)
    for _ in run.steps():
        ids = torch.randint(10, (16, 24)).to(run.device)
        run.loss = F.cross_entropy(call(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        model.zero_grad(set_to_none=True)
        run.loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def bert(run: Run) -> None:
    """transformers' BERT of two layers, fine-tuned by its Trainer."""
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

    config = BertConfig(
        vocab_size=500, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    data = [{"input_ids": torch.randint(500, (32,)), "labels": torch.tensor(i % 2)} for i in range(4 * run.count)]

    class Marks(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            run.ended()

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=4, num_train_epochs=1, report_to=[], save_strategy="no",
            disable_tqdm=True, use_cpu=run.mode != "xla", dataloader_pin_memory=False, logging_steps=run.count,
            torch_compile=run.mode == "inductor", torch_compile_backend="inductor" if run.mode == "inductor" else None,
        )  # fmt: skip
        model = BertForSequenceClassification(config)
        trainer = Trainer(model, arguments, train_dataset=data, callbacks=[Marks()])
        run.ended()  # the beginning of the first
        trainer.train()
    run.loss = torch.tensor(next(log["loss"] for log in trainer.state.log_history if "loss" in log))


def vit(run: Run) -> None:
    """transformers' ViT-S/16 (benchmarks/models), two images of 224 x 224, AdamW."""
    model = MODELS["ViT"][0]().to(run.device)

    def loss(call: Any) -> torch.Tensor:
        images, labels = torch.randn(2, 3, 224, 224), torch.randint(1000, (2,))
        return F.cross_entropy(call(images.to(run.device)), labels.to(run.device))

    _train(run, model, torch.optim.AdamW(model.parameters(), lr=1e-4), loss)


def resnet18(run: Run) -> None:
    """torchvision's architecture (benchmarks/models), four images of 64 x 64, SGD with momentum."""
    model = MODELS["resnet18"][0]().to(run.device)

    def loss(call: Any) -> torch.Tensor:
        images, labels = torch.randn(4, 3, 64, 64), torch.randint(1000, (4,))
        return F.cross_entropy(call(images.to(run.device)), labels.to(run.device))

    _train(run, model, torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9), loss)


def gan(run: Run) -> None:
    """A small DCGAN: the discriminator on real and fake images, then the generator; Adam for each."""
    up: Any = lambda a, b, s, p: [nn.ConvTranspose2d(a, b, 4, s, p, bias=False), nn.BatchNorm2d(b), nn.ReLU()]  # noqa: E731
    generator = nn.Sequential(*up(16, 32, 1, 0), *up(32, 16, 2, 1), nn.ConvTranspose2d(16, 1, 4, 2, 1), nn.Tanh())
    discriminator = nn.Sequential(
        nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32),
        nn.LeakyReLU(0.2), nn.Conv2d(32, 1, 4, 1, 0), nn.Flatten(0),
    )  # fmt: skip
    generator.to(run.device), discriminator.to(run.device)
    optimizers = [torch.optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999)) for net in (discriminator, generator)]
    make, judge = run.compiled(generator), run.compiled(discriminator)
    for _ in run.steps():
        real, noise = torch.rand(8, 1, 16, 16).to(run.device), torch.randn(8, 16, 1, 1).to(run.device)
        ones, zeros = torch.ones(8, device=run.device), torch.zeros(8, device=run.device)
        fake = make(noise)
        optimizers[0].zero_grad()
        on_real = F.binary_cross_entropy_with_logits(judge(real), ones)
        (on_real + F.binary_cross_entropy_with_logits(judge(fake.detach()), zeros)).backward()
        optimizers[0].step()
        optimizers[1].zero_grad()
        run.loss = F.binary_cross_entropy_with_logits(judge(fake), ones)
        run.loss.backward()
        optimizers[1].step()


def lstm(run: Run) -> None:
    """One LSTM layer over 24 positions, Adam."""

    model = second_start.lstm()[0].to(run.device)

    def loss(call: Any) -> torch.Tensor:
        return call(torch.randn(8, 24, 16).to(run.device)).square().mean()  # type: ignore[no-any-return]

    _train(run, model, torch.optim.Adam(model.parameters(), lr=1e-3), loss)


def diffusion(run: Run) -> None:
    """Sampling: a convolutional denoiser, one step of DDIM a step."""
    denoiser = nn.Sequential(
        nn.Conv2d(4, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.SiLU(), nn.Conv2d(32, 32, 3, padding=1),
        nn.GroupNorm(4, 32), nn.SiLU(), nn.Conv2d(32, 3, 3, padding=1),
    ).to(run.device)  # fmt: skip
    call = run.compiled(denoiser)
    x = torch.randn(2, 3, 16, 16).to(run.device)
    with torch.no_grad():
        for number, _ in enumerate(run.steps()):
            alpha, after = 0.1 + 0.11 * number, 0.21 + 0.11 * number
            level = torch.full((2, 1, 16, 16), alpha, device=run.device)
            noise = call(torch.cat((x, level), dim=1))
            clean = (x - (1 - alpha) ** 0.5 * noise) / alpha**0.5
            x = after**0.5 * clean + (1 - after) ** 0.5 * noise
            run.loss = x.square().mean()


def ppo(run: Run) -> None:
    """An iteration a step: 16 observations acted on, advantages from the end on, two updates with Adam."""
    body = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 5)).to(run.device)  # four actions and a value
    optimizer = torch.optim.Adam(body.parameters(), lr=1e-3)
    call = run.compiled(body)
    for _ in run.steps():
        seen, rewards = torch.randn(16, 4, 8).to(run.device), torch.randn(16, 4).to(run.device)
        with torch.no_grad():
            out = call(seen)
            old = out[..., :4].log_softmax(-1)
            actions = out[..., :4].argmax(-1, keepdim=True)
            values, last, advantages = out[..., 4], torch.zeros(4, device=run.device), []
            for t in reversed(range(15)):
                last = rewards[t] + 0.99 * values[t + 1] - values[t] + 0.95 * last
                advantages.append(last)
            advantage = torch.stack(advantages[::-1])
        for _ in range(2):
            optimizer.zero_grad()
            new = call(seen)
            ratio = (new[..., :4].log_softmax(-1) - old).gather(-1, actions)[:15, :, 0].exp()
            clipped = ratio.clamp(0.8, 1.2)
            error = new[:15, :, 4] - (advantage + values[:15])
            run.loss = -torch.min(ratio * advantage, clipped * advantage).mean() + 0.5 * error.square().mean()
            run.loss.backward()
            nn.utils.clip_grad_norm_(body.parameters(), 0.5)
            optimizer.step()


PROGRAMS: dict[str, Callable[[Run], None]] = {
    one.__name__: one for one in (demo, nanogpt, mingpt, bert, vit, resnet18, gan, lstm, diffusion, ppo)
}
