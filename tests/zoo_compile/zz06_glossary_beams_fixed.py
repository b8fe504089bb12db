# Transliterates place names of a small archive (toy alphabet) with a tiny BART and beam search.
import random
import sys
import time

import torch
from transformers import BartConfig, BartForConditionalGeneration

SOURCE = "абвгдежзиклмнопрстуфх"
TARGET = ["a", "b", "v", "g", "d", "e", "zh", "z", "i", "k", "l", "m", "n", "o", "p", "r", "s", "t", "u", "f", "kh"]
LETTERS = sorted({c for t in TARGET for c in t})
PAD, BOS, EOS, FIRST = 0, 1, 2, 3
VOCAB = FIRST + len(SOURCE) + len(LETTERS)
SOURCE_LEN, TARGET_LEN = 12, 20


def src_ids(word):
    ids = [FIRST + SOURCE.index(c) for c in word][: SOURCE_LEN - 1] + [EOS]
    return ids + [PAD] * (SOURCE_LEN - len(ids))


def tgt_ids(word):
    text = "".join(TARGET[SOURCE.index(c)] for c in word)
    ids = [BOS] + [FIRST + len(SOURCE) + LETTERS.index(c) for c in text][: TARGET_LEN - 2] + [EOS]
    return ids + [PAD] * (TARGET_LEN - len(ids))


def to_text(ids):
    base = FIRST + len(SOURCE)
    return "".join(LETTERS[i - base] for i in ids if i >= base)


class PlaceNames:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def word(self):
        syllables = self.rng.randint(2, 4)
        return "".join(self.rng.choice("бвгджзклмнпрстфх") + self.rng.choice("аеиоу") for _ in range(syllables))

    def batch(self, size):
        words = [self.word() for _ in range(size)]
        src = torch.tensor([src_ids(w) for w in words])
        tgt = torch.tensor([tgt_ids(w) for w in words])
        return words, src, (src != PAD).long(), tgt


def make_model():
    config = BartConfig(
        vocab_size=VOCAB, d_model=48, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96, max_position_embeddings=64,
        dropout=0.0, pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, decoder_start_token_id=BOS,
        forced_eos_token_id=None,
    )
    return BartForConditionalGeneration(config)


class Transliterator:
    def __init__(self, beams=3):
        self.model = make_model()
        self.learn = torch.compile(self.loss, backend="aot_eager")
        self.search = self.model.generate
        self.beams = beams

    def loss(self, src, mask, tgt):
        logits = self.model(input_ids=src, attention_mask=mask, decoder_input_ids=tgt[:, :-1], use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=PAD)

    def fit(self, names, steps, batch=32):
        self.model.train()
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        window = []
        for step in range(1, steps + 1):
            _, src, mask, tgt = names.batch(batch)
            loss = self.learn(src, mask, tgt)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            window.append(loss.detach())
            if step % 50 == 0:
                print(f"step {step}: loss {torch.stack(window).mean():.3f}", file=sys.stderr)
                window.clear()

    @torch.no_grad()
    def transliterate(self, src, mask):
        self.model.eval()
        out = self.search(
            input_ids=src, attention_mask=mask, num_beams=self.beams, do_sample=False,
            max_length=TARGET_LEN, length_penalty=0.8, early_stopping=True,
        )
        return [to_text(row) for row in out.tolist()]


def main():
    torch.manual_seed(1)
    names = PlaceNames(seed=1)
    trans = Transliterator()
    begun = time.time()
    trans.fit(names, steps=200)
    print(f"fitted in {time.time() - begun:.1f} s")

    archive = PlaceNames(seed=77)
    begun = time.time()
    right = total = 0
    for _ in range(6):
        words, src, mask, tgt = archive.batch(8)
        for word, guess, truth in zip(words, trans.transliterate(src, mask), tgt.tolist()):
            right += guess == to_text(truth)
            total += 1
    print(f"{right} of {total} names right, {time.time() - begun:.1f} s")


if __name__ == "__main__":
    main()
