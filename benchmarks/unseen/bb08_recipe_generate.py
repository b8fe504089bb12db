import random
import time

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

PAD, BOS, EOS = 0, 1, 2
STEPS = ["chop", "fry", "boil", "mix", "bake", "rest", "salt", "serve"]


class RecipeTokenizer:
    """Words to ids, left padded."""

    def __init__(self, vocab_size):
        self.vocab_size = vocab_size
        self.table = {w: 3 + i for i, w in enumerate(STEPS)}

    def encode(self, text):
        ids = [BOS]
        for w in text.split():
            ids.append(self.table.get(w, 16 + sum(map(ord, w)) % (self.vocab_size - 16)))
        return torch.tensor(ids)

    def batch(self, texts):
        rows = [self.encode(t).flip(0) for t in texts]
        ids = pad_sequence(rows, batch_first=True, padding_value=PAD).flip(1)
        return ids, (ids != PAD).long()


def make_requests(n, seed):
    rng = random.Random(seed)
    foods = ["carrot", "onion", "rice", "egg", "bean", "leek", "corn", "beet"]
    return [" ".join(rng.choice(STEPS) + " " + rng.choice(foods) for _ in range(rng.randrange(1, 10)))
            for _ in range(n)]


def requests_in_groups(texts, size):
    for i in range(0, len(texts), size):
        yield texts[i:i + size]


class Generator:
    def __init__(self, config, new_tokens, backend):
        self.model = LlamaForCausalLM(config).eval()
        self.new_tokens = new_tokens
        self.decode = torch.compile(self.model.forward, backend=backend, dynamic=False)

    def room_for(self, ids):
        return ids.shape[1] + self.new_tokens

    @staticmethod
    def pick(logits, temperature, gen):
        probs = torch.softmax(logits[:, -1] / temperature, -1)
        return torch.multinomial(probs, 1, generator=gen)

    @torch.no_grad()
    def __call__(self, ids, mask, temperature, gen):
        room = self.room_for(ids)
        cache = StaticCache(config=self.model.config, max_cache_len=room)
        full = torch.zeros(len(ids), room, dtype=torch.long)
        full[:, :ids.shape[1]] = mask
        places = (mask.cumsum(1) - 1).clamp(min=0)
        out = self.model(input_ids=ids, attention_mask=full, position_ids=places,
                         past_key_values=cache, use_cache=True)
        token = self.pick(out.logits, temperature, gen)
        place = places[:, -1:] + 1
        tokens = [token]
        for i in range(self.new_tokens - 1):
            full[:, ids.shape[1] + i] = 1
            out = self.decode(input_ids=token, attention_mask=full, position_ids=place,
                              past_key_values=cache, use_cache=True)
            token = self.pick(out.logits, temperature, gen)
            tokens.append(token)
            place = place + 1
        return torch.cat(tokens, 1)


def main():
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
                         pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS)
    tok = RecipeTokenizer(config.vocab_size)
    generator = Generator(config, new_tokens=24, backend="aot_eager")
    gen = torch.Generator().manual_seed(1)
    lengths, began = [], time.time()
    for n, group in enumerate(requests_in_groups(make_requests(120, 5), 4)):
        ids, mask = tok.batch(group)
        out = generator(ids, mask, 0.8, gen)
        ended = (out == EOS).int().cumsum(1) == 0
        lengths += (ended.sum(1)).tolist()
        if n % 6 == 5:
            print(f"{len(lengths)} answered, mean length {sum(lengths) / len(lengths):.1f}, "
                  f"{time.time() - began:.1f}s", flush=True)


if __name__ == "__main__":
    main()
