"""Completes airfield weather reports (METAR) that the teletype cut off."""
import argparse
import logging
import random
import time

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

log = logging.getLogger("metar")

ALPHABET = "\0\1\2 ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/+-"
PAD, BOS, EOS = 0, 1, 2
STATIONS = ["ENBR", "BIKF", "LFPG", "EGPD", "LOWI", "EKVG", "UMMS", "LPMA"]
WEATHER = ["", "-RA", "+SN", "BR", "FG", "-DZ", "SHRA", "TSGR"]
CLOUDS = ["FEW", "SCT", "BKN", "OVC"]


def compose(rng: random.Random) -> str:
    temperature = rng.randint(0, 30)
    parts = [
        rng.choice(STATIONS),
        f"{rng.randint(1, 28):02d}{rng.randint(0, 23):02d}50Z",
        f"{rng.randint(0, 35) * 10:03d}{rng.randint(2, 40):02d}KT",
        rng.choice(["9999", "4000", "0800"]),
        rng.choice(WEATHER),
        f"{rng.choice(CLOUDS)}{rng.randint(3, 90):03d}",
        f"{temperature:02d}/{max(temperature - rng.randint(0, 9), 0):02d}",
        f"Q{rng.randint(975, 1040):04d}",
    ]
    return " ".join(p for p in parts if p)


def encode(text: str) -> list[int]:
    return [BOS] + [ALPHABET.index(c) for c in text]


def decode(ids: list[int]) -> str:
    return "".join(ALPHABET[i] for i in ids if i > EOS)


class Reports(Dataset):
    def __init__(self, count: int, length: int, seed: int):
        rng = random.Random(seed)
        self.length = length
        self.texts = [compose(rng) for _ in range(count)]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        ids = (encode(self.texts[index]) + [EOS])[: self.length]
        ids += [PAD] * (self.length - len(ids))
        return torch.tensor(ids)


def build_model(length: int) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=len(ALPHABET), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4 * length,
        pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS,
    )
    return LlamaForCausalLM(config)


def train(model, loader, epochs: int, lr: float):
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    model.train()
    for epoch in range(epochs):
        total = torch.zeros(())
        for ids in loader:
            logits = model(input_ids=ids, use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(
                logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), ignore_index=PAD
            )
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            total += loss.detach()
        log.info("epoch %d loss %.3f", epoch, total.item() / len(loader))


def left_pad(rows: list[list[int]]):
    width = max(len(r) for r in rows)
    ids = torch.tensor([[PAD] * (width - len(r)) + r for r in rows])
    return ids, (ids != PAD).long()


@torch.no_grad()
def complete(model, fragments: list[str], batch_size: int, new_tokens: int):
    model.eval()
    settings = GenerationConfig(
        max_new_tokens=new_tokens, min_new_tokens=new_tokens, do_sample=False,
        pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS,
    )
    completed = []
    for start in range(0, len(fragments), batch_size):
        ids, mask = left_pad([encode(f) for f in fragments[start : start + batch_size]])
        out = model.generate(input_ids=ids, attention_mask=mask, generation_config=settings)
        completed += [decode(row.tolist()) for row in out]
    return completed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--fragments", type=int, default=48)
    parser.add_argument("--length", type=int, default=56)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)7d %(message)s")
    torch.manual_seed(3)

    model = build_model(args.length)
    model.compile(dynamic=False)
    loader = DataLoader(Reports(1024, args.length, seed=1), batch_size=32, shuffle=True, drop_last=True)
    train(model, loader, args.epochs, lr=3e-3)

    rng = random.Random(9)
    fragments = []
    for _ in range(args.fragments):
        text = compose(rng)
        fragments.append(text[: rng.randint(12, 30)])
    begun = time.perf_counter()
    for fragment, text in zip(fragments, complete(model, fragments, batch_size=8, new_tokens=20)):
        log.debug("%s -> %s", fragment, text)
    log.info("completed %d reports in %.1f s", len(fragments), time.perf_counter() - begun)


if __name__ == "__main__":
    main()
