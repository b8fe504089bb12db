"""Embedding service for lost-property notices: queue, padding to buckets, compiled BERT encoder."""
from __future__ import annotations

import bisect
import logging
import time
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

logger = logging.getLogger("notices")
WORDS = 400
LENGTHS = (16, 32, 64)
ROWS = 16


@dataclass
class Notice:
    ident: int
    tokens: list[int]
    arrived: float = field(default_factory=time.perf_counter)


class NoticeEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = BertModel(
            BertConfig(
                vocab_size=WORDS, hidden_size=64, num_hidden_layers=3, num_attention_heads=4,
                intermediate_size=128, max_position_embeddings=max(LENGTHS),
            ),
            add_pooling_layer=False,
        )
        self.project = nn.Linear(64, 32)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1)
        return nn.functional.normalize(self.project(mean), dim=-1)


class EmbeddingService:
    def __init__(self, encoder: NoticeEncoder):
        self.encoder = encoder.eval()
        self.encode = torch.compile(encoder, backend="aot_eager", dynamic=False)
        self.waiting: dict[int, list[Notice]] = defaultdict(list)
        self.vectors: dict[int, np.ndarray] = {}
        self.delays: list[float] = []

    def warm_up(self):
        for length in LENGTHS:
            blank = torch.ones(ROWS, length, dtype=torch.long)
            with torch.inference_mode():
                self.encode(blank, blank.clone())

    def submit(self, notice: Notice):
        length = LENGTHS[bisect.bisect_left(LENGTHS, len(notice.tokens))]
        queue = self.waiting[length]
        queue.append(notice)
        if len(queue) == ROWS:
            self.flush(length)

    def flush(self, length: int):
        notices = self.waiting.pop(length, [])
        if not notices:
            return
        ids = np.zeros((ROWS, length), dtype=np.int64)
        for row, notice in zip(ids, notices):
            row[: len(notice.tokens)] = notice.tokens
        input_ids = torch.from_numpy(ids)
        with torch.inference_mode():
            vectors = self.encode(input_ids, (input_ids != 0).long())
        for notice, vector in zip(notices, vectors[: len(notices)].numpy()):
            self.vectors[notice.ident] = vector
            self.delays.append(time.perf_counter() - notice.arrived)

    def flush_all(self):
        for length in list(self.waiting):
            self.flush(length)

    def nearest(self, ident: int, count: int = 3) -> list[int]:
        keys = np.fromiter(self.vectors, dtype=np.int64)
        matrix = np.stack([self.vectors[k] for k in keys])
        order = np.argsort(-(matrix @ self.vectors[ident]))
        return [int(keys[i]) for i in order if keys[i] != ident][:count]


def incoming(count: int, seed: int):
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(WORDS - 1, 0.02), size=12)
    for ident in range(count):
        size = int(np.clip(rng.lognormal(3.0, 0.6), 4, LENGTHS[-1]))
        yield Notice(ident, (rng.choice(WORDS - 1, size=size, p=topics[ident % 12]) + 1).tolist())


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(6)
    service = EmbeddingService(NoticeEncoder())
    service.warm_up()
    logger.info("warm, %d shapes ready", len(LENGTHS))

    begun = time.perf_counter()
    for number, notice in enumerate(incoming(12000, seed=3), start=1):
        service.submit(notice)
        if number % 4000 == 0:
            logger.info("%d notices, median delay %.1f ms", number, 1e3 * float(np.median(service.delays[-500:])))
    service.flush_all()
    rate = len(service.vectors) / (time.perf_counter() - begun)
    logger.info("%d vectors, %.0f a second; like notice 5: %s", len(service.vectors), rate, service.nearest(5))


if __name__ == "__main__":
    main()
