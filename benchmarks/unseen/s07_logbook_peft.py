"""Adapts a tiny decoder to lighthouse logbooks with LoRA (peft) and transformers' Trainer on an XLA device."""
import logging
import random

import torch
import torch_xla
from peft import LoraConfig, get_peft_model
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed

logger = logging.getLogger("logbook")
BLOCK = 32
WINDS = ["nw", "n", "ne", "e", "se", "s", "sw", "w", "calm"]
EVENTS = ["lamp trimmed", "lens polished", "fog signal sounded", "relief boat arrived", "supplies landed",
          "mechanism wound", "storm panes fitted", "steamer passed inbound", "schooner aground"]


def write_logbook(days, rng):
    wind, lines = rng.randrange(9), []
    for _ in range(days):
        wind = (wind + rng.choice([-1, 0, 0, 1])) % 9
        for watch in ("first", "middle", "morning"):
            force = rng.randint(0, 9)
            event = rng.choice(EVENTS[:5] if force < 6 else EVENTS[2:])
            lines.append(f"{watch} watch wind {WINDS[wind]} force {force} {event} .")
    return " ".join(lines)


class Vocabulary:
    def __init__(self, text):
        self.words = ["<pad>", *sorted(set(text.split()))]
        self.index = {w: i for i, w in enumerate(self.words)}

    def encode(self, text):
        return [self.index.get(w, 0) for w in text.split()]


class PackedBlocks(Dataset):
    """The log as one stream cut into blocks of equal length, so no block is padded."""

    def __init__(self, ids, block=BLOCK):
        usable = len(ids) // block * block
        self.blocks = torch.tensor(ids[:usable]).view(-1, block)

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, i):
        return {"input_ids": self.blocks[i], "labels": self.blocks[i]}


CAUSAL = torch.full((1, 1, BLOCK, BLOCK), torch.finfo(torch.float32).min).triu(1)


def stack_blocks(features):
    batch = {k: torch.stack([f[k] for f in features]) for k in features[0]}
    batch["attention_mask"] = CAUSAL.repeat(len(features), 1, 1, 1)
    return batch


class AdapterWatch(TrainerCallback):
    """Keeps the size of the adapters' update on the device and shows it with the Trainer's own log."""

    def __init__(self, every):
        self.every = every
        self.sizes = []

    @torch.no_grad()
    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % self.every:
            return
        total = sum(p.pow(2).sum() for n, p in model.named_parameters() if "lora_B" in n)
        self.sizes.append((state.global_step, float(total.sqrt())))
        logger.info("step %d: |B| %.4f", *self.sizes[-1])


def keep_argmax(logits, labels):
    return logits.argmax(dim=-1)


def next_word_accuracy(prediction):
    guess, truth = prediction.predictions[:, :-1], prediction.label_ids[:, 1:]
    return {"next_word": float((guess == truth).mean())}


def main():
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    set_seed(17)
    rng = random.Random(17)
    text = write_logbook(420, rng)
    vocabulary = Vocabulary(text)
    blocks = PackedBlocks(vocabulary.encode(text))
    held = PackedBlocks(vocabulary.encode(write_logbook(90, rng)))
    held.blocks = held.blocks[:64]
    blocks.blocks = blocks.blocks[: len(blocks) // 32 * 32]

    base = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(vocabulary.words), hidden_size=48, intermediate_size=96, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, attn_implementation="eager",
        use_cache=False, pad_token_id=0, bos_token_id=None, eos_token_id=None))
    model = get_peft_model(base, LoraConfig(
        r=4, lora_alpha=8, lora_dropout=0.05, target_modules=["q_proj", "v_proj"],
        modules_to_save=["lm_head"], task_type="CAUSAL_LM"))
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    logger.info("%d blocks, %d trainable parameters, device %s", len(blocks), trainable, torch_xla.device())

    args = TrainingArguments(
        output_dir="/tmp/logbook", per_device_train_batch_size=8, gradient_accumulation_steps=4,
        per_device_eval_batch_size=32, num_train_epochs=6, learning_rate=6e-3, lr_scheduler_type="constant",
        logging_steps=30, eval_strategy="steps", eval_steps=30, save_strategy="no", report_to=[],
        disable_tqdm=True, dataloader_drop_last=True, seed=17)
    watch = AdapterWatch(every=30)
    trainer = Trainer(
        model=model, args=args, train_dataset=blocks, eval_dataset=held, data_collator=stack_blocks,
        compute_metrics=next_word_accuracy, preprocess_logits_for_metrics=keep_argmax, callbacks=[watch])
    trainer.train()
    print("evaluation:", {k: round(v, 3) for k, v in trainer.evaluate().items() if "next_word" in k or "loss" in k})


if __name__ == "__main__":
    main()
