"""Train a classifier with accelerate: gradients of two batches, predictions gathered for a metric after each epoch."""

import torch
from _session import BACKEND, IS_XLA, finish, sync
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accelerator = Accelerator(cpu=not IS_XLA, gradient_accumulation_steps=2, dynamo_backend=BACKEND or None)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.95**step)
train_loader = DataLoader(TensorDataset(torch.randn(90, 16), torch.randint(0, 3, (90,))), batch_size=8, shuffle=False)
eval_loader = DataLoader(TensorDataset(torch.randn(30, 16), torch.randint(0, 3, (30,))), batch_size=8)
model, optimizer, train_loader, eval_loader, schedule = accelerator.prepare(
    model, optimizer, train_loader, eval_loader, schedule
)
losses = []
for epoch in range(4):
    model.train()
    total_loss = 0
    for inputs, labels in train_loader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(inputs), labels)
            total_loss += loss.detach().float()
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        sync()
    model.eval()
    correct = 0
    for inputs, labels in eval_loader:
        with torch.no_grad():
            predictions = model(inputs).argmax(dim=-1)
        predictions, references = accelerator.gather_for_metrics((predictions, labels))
        correct += (predictions == references).sum().item()
    accelerator.print(f"epoch {epoch}: accuracy {correct / 30:.2f}")
    losses.append(total_loss.item() / len(train_loader))
finish(losses)
