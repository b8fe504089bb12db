"""A dialect for a tiny Llama: LoRA by peft on xla, in two lengths of context, with a held-out perplexity."""
import math
import random
import time
from collections import defaultdict

import torch
import torch_xla
import torch_xla.core.xla_model as xm
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

BUCKETS = (16, 32)
PAD, BOS = 0, 1
VOCAB = 256


class DialectCorpus:
    """Sentences of a first order Markov chain; a length falls into the bucket that holds it."""

    def __init__(self, count, seed):
        rng = random.Random(seed)
        follow = {w: [rng.randrange(2, VOCAB) for _ in range(3)] for w in range(VOCAB)}
        self.buckets = defaultdict(list)
        for _ in range(count):
            length = rng.randint(8, BUCKETS[-1])
            words = [BOS]
            while len(words) < length:
                words.append(rng.choice(follow[words[-1]]))
            bucket = next(b for b in BUCKETS if length <= b)
            self.buckets[bucket].append(words + [PAD] * (bucket - length))
        self.rng = rng

    def batches(self, size, shuffle=True):
        plan = []
        for rows in self.buckets.values():
            order = list(range(len(rows)))
            if shuffle:
                self.rng.shuffle(order)
            for i in range(0, len(order) - size + 1, size):
                plan.append(torch.tensor([rows[j] for j in order[i:i + size]]))
        if shuffle:
            self.rng.shuffle(plan)
        return plan


def to_device(ids, device):
    labels = ids.masked_fill(ids == PAD, -100)
    return ids.to(device), labels.to(device)


def build(device):
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, attn_implementation="eager", use_cache=False,
    )
    lora = LoraConfig(
        r=8, lora_alpha=16, lora_dropout=0.0, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"],
        modules_to_save=["lm_head"],
    )
    return get_peft_model(LlamaForCausalLM(config), lora).to(device)


class Progress:
    """Sums on the device; the numbers come over when there is a line to write."""

    def __init__(self, device, every):
        self.every = every
        self.total = torch.zeros((), device=device)
        self.steps = 0
        self.began = time.perf_counter()

    def update(self, loss):
        self.total += loss
        self.steps += 1
        return self.steps % self.every == 0

    def line(self):
        mean = self.total.item() / self.every
        self.total.zero_()
        seconds = time.perf_counter() - self.began
        self.began = time.perf_counter()
        return f"step {self.steps:4d}  loss {mean:.4f}  {self.every / seconds:.1f} steps/s"


@torch.no_grad()
def perplexity(model, batches, device):
    model.eval()
    loss = torch.zeros((), device=device)
    for ids in batches:
        inputs, labels = to_device(ids, device)
        loss += model(input_ids=inputs, labels=labels).loss
        torch_xla.sync()
    model.train()
    return math.exp(loss.item() / len(batches))


def main():
    torch.manual_seed(21)
    device = xm.xla_device()
    corpus = DialectCorpus(1000, seed=4)
    held_out = DialectCorpus(160, seed=4).batches(8, shuffle=False)
    model = build(device)
    trained = [p for p in model.parameters() if p.requires_grad]
    print(f"{sum(p.numel() for p in trained)} of {sum(p.numel() for p in model.parameters())} parameters are trained")
    optimizer = torch.optim.AdamW(trained, lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 240)
    progress = Progress(device, every=50)

    for epoch in range(2):
        for ids in corpus.batches(8):
            inputs, labels = to_device(ids, device)
            loss = model(input_ids=inputs, labels=labels).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            log_now = progress.update(loss.detach())
            torch_xla.sync()
            if log_now:
                print(progress.line())
        print(f"epoch {epoch}: perplexity {perplexity(model, held_out, device):.2f}")

    adapter = {k: v.cpu() for k, v in model.state_dict().items() if "lora_" in k}
    torch.save(adapter, "/tmp/dialect_lora.pt")
    print(f"saved {len(adapter)} tensors")


if __name__ == "__main__":
    main()
