"""Pretrains a tiny GPT-2 on packed recipe text with the Trainer; checkpoints and an evaluation at the end of each epoch."""
import argparse
import logging
import random
import tempfile

import torch
import torch_xla  # noqa: F401
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

log = logging.getLogger("recipes")

STEPS = ["chop the {0}", "fry the {0} in {1}", "add {1} and {0}", "let the {0} rest", "serve with {1}"]
FOODS = "onion garlic butter rice tomato basil pepper cream flour egg milk lemon".split()


def write_recipe(rng):
    lines = [rng.choice(STEPS).format(rng.choice(FOODS), rng.choice(FOODS)) for _ in range(rng.randint(3, 9))]
    return ". ".join(lines) + ".\n"


class PackedText(Dataset):
    """Recipes of any length, joined and cut into blocks of one length; what is left at the end is dropped."""

    def __init__(self, recipes, block_size):
        stream = []
        for recipe in recipes:
            stream.extend(recipe.encode("ascii"))
        count = len(stream) // block_size
        self.blocks = torch.tensor(stream[: count * block_size]).view(count, block_size)

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, i):
        block = self.blocks[i]
        return {"input_ids": block, "attention_mask": torch.ones_like(block), "labels": block}


class Pace(TrainerCallback):
    """Notes at each log how far the run is; looks only at numbers the Trainer has already."""

    def __init__(self):
        self.losses = []

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % 10 == 0:
            log.info("step %d of %d", state.global_step, state.max_steps)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            self.losses.append(float(logs["loss"]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipes", type=int, default=200)
    parser.add_argument("--block-size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    set_seed(3)

    rng = random.Random(0)
    recipes = [write_recipe(rng) for _ in range(args.recipes)]
    cut = len(recipes) * 9 // 10
    train_set, held_out = PackedText(recipes[:cut], args.block_size), PackedText(recipes[cut:], args.block_size)
    log.info("%d blocks to train, %d held out", len(train_set), len(held_out))

    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=128, n_positions=args.block_size, n_embd=48, n_layer=1, n_head=4, bos_token_id=0, eos_token_id=0,
        attn_implementation="eager",
    ))
    pace = Pace()
    with tempfile.TemporaryDirectory() as folder:
        training_args = TrainingArguments(
            output_dir=folder,
            num_train_epochs=args.epochs,
            per_device_train_batch_size=args.batch_size,
            per_device_eval_batch_size=args.batch_size,
            dataloader_drop_last=True,
            learning_rate=1e-3,
            lr_scheduler_type="cosine",
            warmup_steps=6,
            logging_steps=20,
            eval_strategy="epoch",
            prediction_loss_only=True,
            save_strategy="epoch",
            save_total_limit=1,
            report_to=[],
            disable_tqdm=True,
        )
        trainer = Trainer(model=model, args=training_args, train_dataset=train_set, eval_dataset=held_out, callbacks=[pace])
        trainer.train()
        final = trainer.evaluate()
    log.info("logged losses %s, held out %.3f", ["%.2f" % x for x in pace.losses], final["eval_loss"])


if __name__ == "__main__":
    main()
