"""Answer prompts with a loop of one's own: a static cache, one token at a time, as the advice on generate() says."""

import torch
from _session import compiled, device, finish, sync
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=60, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=None,
)  # fmt: skip
model = LlamaForCausalLM(config).eval().to(device)
call = compiled(model)
answers = []
with torch.no_grad():
    for _ in range(3):
        prompt = torch.randint(1, 60, (2, 8)).to(device)
        cache = StaticCache(config=model.config, max_cache_len=32)
        token = call(prompt, past_key_values=cache).logits[:, -1:].argmax(-1)
        tokens = [token]
        for position in range(8, 19):
            sync()
            position_ids = torch.full_like(token, position)
            token = call(token, past_key_values=cache, position_ids=position_ids).logits[:, -1:].argmax(-1)
            tokens.append(token)
        sync()
        answers += tokens
finish(torch.cat(answers).flatten().tolist())
