"""A byte-pair tokenizer in plain Python: clear, exact, and as slow as plain Python is."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise


class Tokenizer:
    """Learns ``merges`` byte pairs from ``text``: tokens are the 256 bytes, then the pairs in the order learnt."""

    def __init__(self, text: str, merges: int = 256) -> None:
        self.merges: dict[tuple[int, int], int] = {}
        tokens = list(text.encode())
        for token in range(256, 256 + merges):
            # The most frequent pair; of equally frequent ones the smallest, so that the result is unique.
            pair = min(Counter(pairwise(tokens)).items(), key=lambda item: (-item[1], item[0]))[0]
            self.merges[pair] = token
            tokens = _merge(tokens, pair, token)

    @property
    def vocabulary(self) -> int:
        return 256 + len(self.merges)

    def encode(self, text: str) -> list[int]:
        tokens = list(text.encode())
        while pairs := set(pairwise(tokens)) & self.merges.keys():
            pair = min(pairs, key=self.merges.__getitem__)  # the one learnt first
            tokens = _merge(tokens, pair, self.merges[pair])
        return tokens


def _merge(tokens: list[int], pair: tuple[int, int], merged: int) -> list[int]:
    """``tokens`` with every occurrence of ``pair``, from the left, replaced by ``merged``."""
    out: list[int] = []
    for token in tokens:
        if out and (out[-1], token) == pair:
            out[-1] = merged
        else:
            out.append(token)
    return out
