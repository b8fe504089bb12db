"""One language model, a LoRA adapter per wine cellar: every cellar writes tasting notes in its own manner (peft, compiled)."""
import random
import time

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

CELLARS = ["ahr", "baden", "chablis", "douro", "etna", "franken", "graves", "hermitage", "irouleguy", "jura", "kamptal",
           "lavaux"]
AROMAS = "cherry plum slate smoke honey pear quince thyme leather cocoa iris salt flint rose fig lemon".split()
FRAMES = "nose palate finish with and of some deep light long".split()
WORDS = ["<pad>", "<s>", "</s>"] + FRAMES + AROMAS
IDS = {w: i for i, w in enumerate(WORDS)}
LENGTH = 32


def tasting_note(rng, cellar):
    """Every cellar prefers four aromas and an order of the parts."""
    taste = random.Random(cellar)
    favourites = taste.sample(AROMAS, 4)
    parts = taste.sample(["nose", "palate", "finish"], 3)
    words = ["<s>"]
    for part in parts:
        words += [part, rng.choice(["deep", "light", "long"]), rng.choice(favourites), "and", rng.choice(favourites)]
        if rng.random() < 0.5:
            words += ["with", rng.choice(AROMAS)]
    return [IDS[w] for w in words + ["</s>"]]


def batch_of_notes(rng, cellar, size):
    rows = torch.zeros(size, LENGTH, dtype=torch.long)
    for row in rows:
        note = tasting_note(rng, cellar)
        row[:len(note)] = torch.tensor(note)
    return rows


def build():
    config = GPT2Config(vocab_size=len(WORDS), n_positions=LENGTH, n_embd=48, n_layer=1, n_head=4, resid_pdrop=0.0,
                        embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, bos_token_id=1, eos_token_id=2)
    base = GPT2LMHeadModel(config)
    lora = LoraConfig(r=4, lora_alpha=8, target_modules=["c_attn", "c_fc"], lora_dropout=0.0, fan_in_fan_out=True)
    model = get_peft_model(base, lora, adapter_name=CELLARS[0])
    for cellar in CELLARS[1:]:
        model.add_adapter(cellar, lora)
    return model


class AdapterTrainer:
    def __init__(self, model, lr=5e-3):
        self.model = model
        self.forward = torch.compile(self.note_loss, backend="aot_eager")
        self.optimizers = {}
        for cellar in CELLARS:
            mine = [p for n, p in model.named_parameters() if f".{cellar}." in n]
            for p in mine:
                p.requires_grad_(True)
            self.optimizers[cellar] = torch.optim.AdamW(mine, lr=lr)

    def note_loss(self, ids):
        logits = self.model(input_ids=ids).logits[:, :-1]
        return nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)

    def step(self, cellar, ids):
        self.model.set_adapter(cellar)
        loss = self.forward(ids)
        loss.backward()
        optimizer = self.optimizers[cellar]
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()


def pretrain(model, rng, steps):
    """The base learns the language of all cellars first, without adapters, in plain eager mode."""
    base = model.get_base_model()
    weights = [p for n, p in base.named_parameters() if "lora_" not in n]
    for p in weights:
        p.requires_grad_(True)
    optimizer = torch.optim.AdamW(weights, lr=3e-3)
    with model.disable_adapter():
        for _ in range(steps):
            ids = batch_of_notes(rng, rng.choice(CELLARS), 16)
            logits = base(input_ids=ids).logits[:, :-1]
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    for p in weights:
        p.requires_grad_(False)
    return loss.item()


def main():
    torch.manual_seed(2)
    rng = random.Random(2)
    model = build()
    print(f"base after pretraining: {pretrain(model, rng, 40):.3f}")
    trainer = AdapterTrainer(model)

    schedule = [cellar for _ in range(10) for cellar in rng.sample(CELLARS, len(CELLARS))]
    losses = {cellar: [] for cellar in CELLARS}
    started = time.perf_counter()
    for number, cellar in enumerate(schedule, 1):
        losses[cellar].append(trainer.step(cellar, batch_of_notes(rng, cellar, 8)))
        if number % 60 == 0:
            recent = torch.stack([kept[-1] for kept in losses.values() if kept]).mean().item()
            print(f"{number} steps, {time.perf_counter() - started:.1f} s, mean of the latest losses {recent:.3f}")
    for cellar in CELLARS:
        print(f"{cellar:10s} {losses[cellar][0].item():.3f} -> {losses[cellar][-1].item():.3f}")


if __name__ == "__main__":
    main()
