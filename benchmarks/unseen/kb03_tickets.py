"""Routing of support tickets with a small BERT encoder (transformers), compiled.

Tickets come from a stream with very different lengths; a byte-level vocabulary is
enough for the synthetic corpus.  Prints the accuracy of each epoch.
"""
import random
import time

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification

random.seed(11)
torch.manual_seed(11)
torch.set_num_threads(1)

QUEUES = {
    "billing": "invoice charge refund card payment vat".split(),
    "network": "router vpn latency packet dns wifi".split(),
    "account": "password login locked email profile token".split(),
    "hardware": "screen battery fan keyboard charger disk".split(),
}
FILLER = "the my please is was again since monday help it not working and with a new".split()
PAD = 0


def write_ticket(queue):
    n = max(4, int(random.lognormvariate(2.3, 0.5)))
    words = [random.choice(QUEUES[queue]) if random.random() < 0.25 else random.choice(FILLER)
             for _ in range(min(n, 38))]
    return " ".join(words)


class Tickets(Dataset):
    def __init__(self, size):
        self.labels = [random.randrange(len(QUEUES)) for _ in range(size)]
        names = list(QUEUES)
        self.texts = [write_ticket(names[y]) for y in self.labels]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        return self.texts[i], self.labels[i]


class Collator:
    def __init__(self, vocab, multiple=8):
        self.vocab = vocab
        self.multiple = multiple

    def __call__(self, rows):
        ids = [[1] + [self.vocab[w] for w in text.split()] for text, _ in rows]
        width = max(len(r) for r in ids)
        width = -(-width // self.multiple) * self.multiple
        input_ids = torch.full((len(rows), width), PAD)
        for i, row in enumerate(ids):
            input_ids[i, :len(row)] = torch.tensor(row)
        return {"input_ids": input_ids,
                "attention_mask": (input_ids != PAD).long(),
                "labels": torch.tensor([y for _, y in rows])}


def build_vocab():
    words = FILLER + [w for ws in QUEUES.values() for w in ws]
    return {w: i + 2 for i, w in enumerate(sorted(set(words)))}


def main():
    vocab = build_vocab()
    cfg = BertConfig(vocab_size=len(vocab) + 2, hidden_size=96, num_hidden_layers=3,
                     num_attention_heads=4, intermediate_size=192, max_position_embeddings=64,
                     num_labels=len(QUEUES))
    net = BertForSequenceClassification(cfg)
    model = torch.compile(net, backend="aot_eager", dynamic=False)
    collate = Collator(vocab)
    train = DataLoader(Tickets(1024), batch_size=16, shuffle=True, drop_last=True, collate_fn=collate)
    valid = DataLoader(Tickets(250), batch_size=16, collate_fn=collate)
    opt = torch.optim.AdamW(net.parameters(), lr=5e-4)

    for epoch in range(4):
        t0 = time.time()
        net.train()
        running = torch.zeros(())
        for batch in train:
            out = model(**batch)
            opt.zero_grad()
            out.loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            running += out.loss.detach()
        net.eval()
        hits = seen = 0
        with torch.inference_mode():
            for batch in valid:
                labels = batch.pop("labels")
                logits = model(**batch).logits
                hits += (logits.argmax(-1) == labels).sum()
                seen += len(labels)
        print(f"epoch {epoch} loss {running.item() / len(train):.4f} "
              f"acc {hits.item() / seen:.3f} {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
