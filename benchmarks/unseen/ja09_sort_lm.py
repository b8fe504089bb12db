# %% [markdown]
# Can a one-layer GPT learn to sort letters?  Trained on strings such as "dacb>abcd.";
# after every epoch it completes unseen prompts greedily and we count exact answers.

# %%
import random

import torch
import torch_xla
import torch_xla.core.xla_model as xm
from transformers import GPT2Config, GPT2LMHeadModel

random.seed(3)
torch.manual_seed(3)
device = torch_xla.device()

LETTERS = "abcdefghij"
VOCAB = {c: i for i, c in enumerate("_>." + LETTERS)}
NAMES = {i: c for c, i in VOCAB.items()}
N = 9                                   # letters per string
BATCH, EPOCHS, STEPS = 64, 4, 60


def example():
    letters = random.choices(LETTERS, k=N)
    return "".join(letters), "".join(sorted(letters))


def encode(text):
    return [VOCAB[c] for c in text]


def decode(row):
    return "".join(NAMES[int(i)] for i in row).split(".")[0]


# %%
class Strings(torch.utils.data.Dataset):
    """Training strings; only the answer counts in the loss (-100 elsewhere)."""

    def __init__(self, count):
        self.rows = [example() for _ in range(count)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, k):
        prompt, answer = self.rows[k]
        ids = torch.tensor(encode(f"{prompt}>{answer}."))
        labels = ids.clone()
        labels[:N + 1] = -100
        return ids, labels


loader = torch.utils.data.DataLoader(Strings(BATCH * STEPS), batch_size=BATCH, shuffle=True, drop_last=True)
quiz = [example() for _ in range(128)]
prompts = torch.tensor([encode(p + ">") for p, _ in quiz]).to(device)

# %%
config = GPT2Config(
    vocab_size=len(VOCAB), n_positions=2 * N + 2, n_embd=48, n_layer=1, n_head=4,
    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
    bos_token_id=0, eos_token_id=VOCAB["."],
)
model = GPT2LMHeadModel(config).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
schedule = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda k: min(1.0, (k + 1) / 20) * max(0.05, 1 - k / (EPOCHS * STEPS)))
print("parameters:", sum(p.numel() for p in model.parameters()))


# %%
@torch.no_grad()
def complete(prompts, new_tokens=N + 1):
    """Greedy continuation."""
    model.eval()
    ids = prompts
    for _ in range(new_tokens):
        logits = model(input_ids=ids).logits
        best = logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, best], dim=1)
        xm.mark_step()
    model.train()
    return ids[:, prompts.shape[1]:].cpu()


def grade(answers):
    exact, letters = 0, 0
    for row, (_, want) in zip(answers, quiz):
        got = decode(row)
        exact += got == want
        letters += sum(g == w for g, w in zip(got, want))
    return exact / len(quiz), letters / (len(quiz) * N)


# %%
for epoch in range(EPOCHS):
    total = torch.zeros((), device=device)
    for ids, labels in loader:
        ids, labels = ids.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        xm.optimizer_step(optimizer)
        schedule.step()
        total += loss.detach()
        xm.mark_step()
    exact, letters = grade(complete(prompts))
    print(f"epoch {epoch}: loss {total.item() / STEPS:.4f} exact {exact:.3f} letters {letters:.3f}", flush=True)

# %%
for row, (prompt, want) in list(zip(complete(prompts), quiz))[:3]:
    print(f"{prompt} -> {decode(row)} (right: {want})")
