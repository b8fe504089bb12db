"""Train a language model as word_language_model does: truncated backpropagation, a learning rate that falls."""

import math
import time

import torch
from _session import compiled, device, finish, sync
from torch import nn

ntoken, bptt, batch_size, epochs, log_interval = 50, 8, 4, 2, 5


class RNNModel(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.encoder, self.decoder = nn.Embedding(ntoken, width), nn.Linear(width, ntoken)
        self.rnn = nn.GRU(width, width, 1)

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.encoder(input), hidden)
        return self.decoder(output).view(-1, ntoken), hidden


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous().to(device)


def get_batch(source, i):
    seq_len = min(bptt, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].view(-1)


def repackage_hidden(h):
    return h.detach()


torch.manual_seed(1111)
train_data, val_data = batchify(torch.randint(0, ntoken, (400,)), batch_size), batchify(torch.arange(99) % ntoken, 4)
model, criterion, lr = RNNModel().to(device), nn.CrossEntropyLoss(), 2.0
call = compiled(model)
history = []


def evaluate(source):
    model.eval()
    total_loss, hidden = 0.0, torch.zeros(1, batch_size, 24, device=device)
    with torch.no_grad():
        for i in range(0, source.size(0) - 1, bptt):
            data, targets = get_batch(source, i)
            output, hidden = call(data, hidden)
            total_loss += len(data) * criterion(output, targets).item()
    return total_loss / (len(source) - 1)


def train(epoch):
    model.train()
    total_loss, start, hidden = 0.0, time.time(), torch.zeros(1, batch_size, 24, device=device)
    for batch, i in enumerate(range(0, train_data.size(0) - 1, bptt)):
        data, targets = get_batch(train_data, i)
        model.zero_grad()
        hidden = repackage_hidden(hidden)
        output, hidden = call(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        sync()
        total_loss += loss.item()
        if batch % log_interval == 0 and batch > 0:
            ppl = math.exp(total_loss / log_interval)
            print(f"| epoch {epoch} | {batch} batches | {time.time() - start:.2f} s | ppl {ppl:8.2f}")
            total_loss = 0
    history.append(loss.item())


best_val_loss = None
for epoch in range(1, epochs + 1):
    train(epoch)
    val_loss = evaluate(val_data)
    history.append(val_loss)
    if not best_val_loss or val_loss < best_val_loss:
        best_val_loss = val_loss
    else:
        lr /= 4.0
finish(history)
