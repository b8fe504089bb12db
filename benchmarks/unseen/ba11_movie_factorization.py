import csv
import io

import torch
import torch.nn as nn
import torch.nn.functional as F

USERS, MOVIES, FACTORS = 400, 300, 16


class Ratings:
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        taste = torch.randn(USERS, 4, generator=torch.Generator().manual_seed(7))
        genre = torch.randn(MOVIES, 4, generator=torch.Generator().manual_seed(8))
        self.user = torch.randint(0, USERS, (n,), generator=g)
        self.movie = torch.randint(0, MOVIES, (n,), generator=g)
        score = (taste[self.user] * genre[self.movie]).sum(1)
        self.score = (3 + 0.5 * score + 0.2 * torch.randn(n, generator=g)).clamp(1, 5)

    def batches(self, size):
        order = torch.randperm(len(self.score))
        for i in range(0, len(order) - size + 1, size):
            index = order[i:i + size]
            yield self.user[index], self.movie[index], self.score[index]


class NeuralFactors(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.movie = nn.Embedding(USERS, FACTORS), nn.Embedding(MOVIES, FACTORS)
        self.user_bias, self.movie_bias = nn.Embedding(USERS, 1), nn.Embedding(MOVIES, 1)
        self.mlp = nn.Sequential(nn.Linear(2 * FACTORS, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
        for table in (self.user, self.movie):
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, user, movie):
        u, m = self.user(user), self.movie(movie)
        bias = self.user_bias(user) + self.movie_bias(movie)
        return 3 + ((u * m).sum(1, keepdim=True) + bias + self.mlp(torch.cat([u, m], 1))).squeeze(1)


class Trainer:
    def __init__(self, model, backend, total, warm=30, peak=0.1):
        self.model = model
        self.opt = torch.optim.SGD(model.parameters(), lr=peak, momentum=0.9, nesterov=True, weight_decay=1e-5)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.opt, lambda s: min(1.0, (s + 1) / warm) * max(0.02, 1.0 - s / total))
        self.predict = torch.compile(model, backend=backend)
        self.apply = torch.compile(self.update, backend=backend)

    def update(self):
        self.opt.step()

    def step(self, user, movie, score):
        loss = F.mse_loss(self.predict(user, movie), score)
        self.opt.zero_grad(set_to_none=False)
        loss.backward()
        self.apply()
        self.schedule.step()
        return loss.detach()

    @torch.no_grad()
    def rmse(self, data, size):
        self.model.eval()
        total, n = torch.zeros(()), 0
        for user, movie, score in data.batches(size):
            total += F.mse_loss(self.predict(user, movie), score)
            n += 1
        self.model.train()
        return (total / n).sqrt().item()


def main(epochs=8, size=128):
    torch.manual_seed(2)
    train, test = Ratings(12000, 1), Ratings(2000, 2)
    model = NeuralFactors()
    trainer = Trainer(model, "aot_eager", epochs * (12000 // size))
    log = io.StringIO()
    writer = csv.writer(log)
    writer.writerow(["epoch", "lr", "loss", "rmse"])
    for epoch in range(epochs):
        total = torch.zeros(())
        for n, batch in enumerate(train.batches(size), 1):
            total += trainer.step(*batch)
        writer.writerow([epoch, f"{trainer.schedule.get_last_lr()[0]:.4f}", f"{total.item() / n:.4f}",
                         f"{trainer.rmse(test, size):.4f}"])
    print(log.getvalue())


if __name__ == "__main__":
    main()
