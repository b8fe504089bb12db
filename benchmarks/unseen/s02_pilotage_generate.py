# Completes harbour pilotage notices: a tiny decoder is fitted on synthetic notices, then drafts the rest of new ones.
import random
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StoppingCriteria, StoppingCriteriaList

VESSELS = ["tanker", "reefer", "barge", "coaster", "bulker", "dredger", "tug"]
BERTHS = ["north", "oil", "grain", "ferry", "inner", "west"]
STATES = ["swell", "fog", "slack", "ebb", "flood", "gusts"]
ORDERS = ["hold", "embark", "await", "proceed", "anchor", "turn"]
WORDS = ["<pad>", "<end>", "the", "for", "at", "in", "two", "three", "pilots", "berth", "until", "then",
         *VESSELS, *BERTHS, *STATES, *ORDERS]
INDEX = {w: i for i, w in enumerate(WORDS)}
PAD, END = 0, 1


def compose(rng):
    parts = [rng.choice(ORDERS), "the", rng.choice(VESSELS), "at", "the", rng.choice(BERTHS), "berth"]
    for _ in range(rng.randint(1, 3)):
        parts += rng.choice([["in", rng.choice(STATES)], ["until", rng.choice(STATES)],
                             ["then", rng.choice(ORDERS)], ["for", "two", "pilots"]])
    return parts


def encode_block(notices, width):
    rows = torch.full((len(notices), width), PAD)
    for r, words in enumerate(notices):
        ids = [INDEX[w] for w in words][: width - 1] + [END]
        rows[r, : len(ids)] = torch.tensor(ids)
    return rows


class NoticeEnds(StoppingCriteria):
    """A row is done at its end mark, or once it names a second berth (the desk splits such notices by hand)."""

    def __init__(self, prompt_width):
        self.prompt_width = prompt_width
        self.berth_ids = [INDEX[b] for b in BERTHS]

    def __call__(self, input_ids, scores, **kwargs):
        done = []
        for row in input_ids:
            latest = int(row[-1])
            done.append(latest == END or latest in self.berth_ids)
        return torch.tensor(done, device=input_ids.device)


class NoticeDesk:
    def __init__(self, config, device, seed=3):
        torch.manual_seed(seed)
        self.device = device
        self.model = LlamaForCausalLM(config).to(device)

    def open_desk(self):
        """Fitting is over: from here on the model only drafts, so its forward is compiled."""
        self.model.eval()
        self.model.forward = torch.compile(self.model.forward, backend="aot_eager", dynamic=False)

    def fit(self, blocks, steps):
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=4e-3)
        self.model.train()
        total = torch.zeros((), device=self.device)
        for step in range(steps):
            ids = blocks[step % len(blocks)]
            labels = ids.masked_fill(ids == PAD, -100)
            loss = self.model(input_ids=ids, labels=labels, use_cache=False).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total += loss.detach()
            if (step + 1) % 30 == 0:
                print(f"step {step + 1:3d}  loss {total.item() / 30:.3f}")
                total.zero_()

    @torch.no_grad()
    def draft(self, openings, new_words=10):
        width = max(len(o) for o in openings)
        ids = torch.full((len(openings), width), PAD)
        mask = torch.zeros(len(openings), width, dtype=torch.long)
        for r, words in enumerate(openings):
            ids[r, width - len(words):] = torch.tensor([INDEX[w] for w in words])
            mask[r, width - len(words):] = 1
        out = self.model.generate(
            input_ids=ids.to(self.device), attention_mask=mask.to(self.device), max_new_tokens=new_words,
            do_sample=True, cache_implementation="static", top_k=8, temperature=0.8, pad_token_id=PAD, eos_token_id=END,
            stopping_criteria=StoppingCriteriaList([NoticeEnds(width)]))
        return [" ".join(WORDS[i] for i in row if i not in (PAD, END)) for row in out.tolist()]


def main():
    rng = random.Random(20)
    device = torch.device("cpu")
    config = LlamaConfig(vocab_size=len(WORDS), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                         num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
                         attn_implementation="eager", bos_token_id=None, eos_token_id=END, pad_token_id=PAD)
    desk = NoticeDesk(config, device)
    blocks = [encode_block([compose(rng) for _ in range(16)], 20).to(device) for _ in range(12)]
    began = time.time()
    desk.fit(blocks, steps=60)
    print(f"fitted in {time.time() - began:.1f} s")

    began = time.time()
    desk.open_desk()
    shift = [[compose(rng)[: rng.randint(2, longest)] for _ in range(4)] for longest in (7, 3, 6, 4, 7, 5, 6, 8)]
    for hour, openings in enumerate(shift):
        for opening, text in zip(openings, desk.draft(openings)):
            print(f"{hour:02d}00  {' '.join(opening)!r:48s} -> {text}")
    print(f"drafted {sum(map(len, shift))} notices in {time.time() - began:.1f} s")


if __name__ == "__main__":
    main()
