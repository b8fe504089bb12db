"""Answer prompts with transformers' generate(), greedily; ``WILD_CACHE=static`` keeps the cache at one size."""

import os

import torch
from _session import compiled, device, finish
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=60, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=None,
)  # fmt: skip
model = LlamaForCausalLM(config).eval().to(device)
model.forward = compiled(model.forward)
options = {"cache_implementation": "static"} if os.environ.get("WILD_CACHE") == "static" else {}
answers = []
for n in range(3):
    prompt = torch.randint(1, 60, (2, 5 + n)).to(device)
    mask = torch.ones_like(prompt)
    answer = model.generate(
        prompt, attention_mask=mask, max_new_tokens=12, do_sample=False, disable_compile=True, **options
    )
    answers += answer.flatten().tolist()
finish(answers)
