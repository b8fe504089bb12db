"""A small BART learns to expand abbreviations in clinical notes; every few steps it writes some out. XLA device."""
import argparse
import logging
import random

import torch
import torch_xla
from transformers import BartConfig, BartForConditionalGeneration

log = logging.getLogger("expand")

PAIRS = {
    "bp": "blood pressure", "hr": "heart rate", "pt": "patient", "hx": "history", "rx": "prescription",
    "sob": "short of breath", "prn": "as needed", "bid": "twice daily", "dx": "diagnosis", "fx": "fracture",
}
PAD, BOS, EOS = 0, 1, 2


class Vocabulary:
    def __init__(self):
        words = sorted(set(PAIRS) | {w for text in PAIRS.values() for w in text.split()})
        self.words = ["<pad>", "<s>", "</s>"] + words
        self.ids = {w: i for i, w in enumerate(self.words)}

    def encode(self, text, length):
        ids = [self.ids[w] for w in text.split()][: length - 1] + [EOS]
        return ids + [PAD] * (length - len(ids))

    def decode(self, ids):
        return " ".join(self.words[i] for i in ids if i > EOS)


def make_notes(n, rng):
    notes = []
    for _ in range(n):
        short = [rng.choice(list(PAIRS)) for _ in range(rng.randint(2, 4))]
        notes.append((" ".join(short), " ".join(PAIRS[s] for s in short)))
    return notes


def batches(notes, vocabulary, batch_size, source_length, target_length):
    for start in range(0, len(notes) - batch_size + 1, batch_size):
        rows = notes[start : start + batch_size]
        source = torch.tensor([vocabulary.encode(a, source_length) for a, _ in rows])
        target = torch.tensor([vocabulary.encode(b, target_length) for _, b in rows])
        yield source, target


def build_model(vocabulary):
    return BartForConditionalGeneration(BartConfig(
        vocab_size=len(vocabulary.words), d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64, dropout=0.0,
        pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, decoder_start_token_id=EOS, forced_eos_token_id=None,
    ))


@torch.no_grad()
def show_samples(model, source, vocabulary, target_length):
    model.eval()
    written = model.generate(
        source, attention_mask=(source != PAD).long(), min_new_tokens=4, max_new_tokens=target_length, num_beams=1, do_sample=False,
    )
    model.train()
    return [vocabulary.decode(row) for row in written.cpu().tolist()]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--notes", type=int, default=480)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--source-length", type=int, default=6)
    parser.add_argument("--target-length", type=int, default=6)
    parser.add_argument("--show-every", type=int, default=20)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)
    device = torch_xla.device()

    vocabulary = Vocabulary()
    notes = make_notes(args.notes, random.Random(0))
    model = build_model(vocabulary).to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    running = torch.zeros((), device=device)

    for step, (source, target) in enumerate(batches(notes, vocabulary, args.batch_size, args.source_length, args.target_length)):
        source, target = source.to(device), target.to(device)
        labels = target.masked_fill(target == PAD, -100)
        loss = model(input_ids=source, attention_mask=(source != PAD).long(), labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        running += loss.detach()
        torch_xla.sync()
        if (step + 1) % args.show_every == 0:
            log.info("step %d, mean loss %.3f", step + 1, running.item() / args.show_every)
            running.zero_()
            for line in show_samples(model, source[:2], vocabulary, args.target_length):
                log.info("  %s", line)


if __name__ == "__main__":
    main()
