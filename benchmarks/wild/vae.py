"""Train a small VAE as PyTorch's example does: epochs of training and testing, sums of losses, a log now and then."""

import torch
from _session import compiled, device, finish, sync
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

batch_size, epochs, log_interval = 16, 3, 5


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(64, 40), nn.Linear(40, 4), nn.Linear(40, 4)
        self.fc3, self.fc4 = nn.Linear(4, 40), nn.Linear(40, 64)

    def forward(self, x, eps):
        h1 = F.relu(self.fc1(x))
        mu, logvar = self.fc21(h1), self.fc22(h1)
        z = mu + eps * torch.exp(0.5 * logvar)
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x, reduction="sum")
    return BCE - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())


torch.manual_seed(1)
train_set, test_set = TensorDataset(torch.rand(170, 64)), TensorDataset(torch.rand(40, 64))
train_loader = DataLoader(train_set, batch_size=batch_size, shuffle=True)
test_loader = DataLoader(test_set, batch_size=batch_size)
model = VAE().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
call = compiled(model)
history = []


def train(epoch):
    model.train()
    train_loss = 0
    for batch_idx, (data,) in enumerate(train_loader):
        data = data.to(device)
        optimizer.zero_grad()
        recon, mu, logvar = call(data, torch.randn(len(data), 4).to(device))
        loss = loss_function(recon, data, mu, logvar)
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
        sync()
        if batch_idx % log_interval == 0:
            print(f"Train Epoch: {epoch} [{batch_idx}/{len(train_loader)}] Loss: {loss.item() / len(data):.4f}")
    history.append(train_loss / len(train_set))


def test():
    model.eval()
    test_loss = 0
    with torch.no_grad():
        for (data,) in test_loader:
            data = data.to(device)
            recon, mu, logvar = call(data, torch.zeros(len(data), 4).to(device))
            test_loss += loss_function(recon, data, mu, logvar).item()
    history.append(test_loss / len(test_set))


for epoch in range(1, epochs + 1):
    train(epoch)
    test()
finish(history)
