"""Click prediction with Lightning: factorised embeddings plus a small tower, dropout eased off over training."""
import logging
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import BinaryAUROC

FIELDS, VOCAB, DENSE = 8, 60, 5


def clicks(n, seed):
    g = torch.Generator().manual_seed(seed)
    shared = torch.Generator().manual_seed(99)
    affinity = torch.randn(FIELDS, VOCAB, generator=shared) * 0.6
    latent = torch.randn(FIELDS, VOCAB, 3, generator=shared) * 0.5
    cat = torch.randint(0, VOCAB, (n, FIELDS), generator=g)
    dense = torch.randn(n, DENSE, generator=g)
    field = torch.arange(FIELDS)
    v = latent[field, cat]
    logit = affinity[field, cat].sum(1) + (v[:, 0] * v[:, 3]).sum(1) * 2 + dense[:, 0] - 1.0
    return cat, dense, torch.bernoulli(torch.sigmoid(logit), generator=g)


class FactorNet(nn.Module):
    def __init__(self, dim=12, width=64):
        super().__init__()
        self.offset = torch.arange(FIELDS) * VOCAB
        self.linear = nn.Embedding(FIELDS * VOCAB, 1)
        self.factor = nn.Embedding(FIELDS * VOCAB, dim)
        nn.init.normal_(self.factor.weight, std=0.05)
        nn.init.zeros_(self.linear.weight)
        self.dropout = nn.Dropout(0.4)
        self.tower = nn.Sequential(
            nn.Linear(FIELDS * dim + DENSE, width), nn.ReLU(), nn.LayerNorm(width), self.dropout,
            nn.Linear(width, width), nn.ReLU(), self.dropout, nn.Linear(width, 1))

    def forward(self, cat, dense):
        idx = cat + self.offset
        e = self.factor(idx)
        pair = 0.5 * (e.sum(1).square() - e.square().sum(1)).sum(-1)
        deep = self.tower(torch.cat([e.flatten(1), dense], 1)).squeeze(-1)
        return self.linear(idx).sum((1, 2)) + pair + deep


class ClickModule(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.net = FactorNet()
        self.net.compile(backend="aot_eager")
        self.train_auc, self.val_auc = BinaryAUROC(), BinaryAUROC()
        self.curve = []

    def training_step(self, batch, batch_idx):
        cat, dense, y = batch
        logit = self.net(cat, dense)
        loss = F.binary_cross_entropy_with_logits(logit, y)
        self.train_auc.update(logit.detach(), y.long())
        self.log("loss", loss)
        self.log("auc", self.train_auc.compute())
        return loss

    def on_train_epoch_end(self):
        self.curve.append(float(self.train_auc.compute()))
        self.train_auc.reset()

    def validation_step(self, batch, batch_idx):
        cat, dense, y = batch
        self.val_auc.update(self.net(cat, dense), y.long())

    def on_validation_epoch_end(self):
        value = self.val_auc.compute()
        if not self.trainer.sanity_checking:
            print(f"epoch {self.current_epoch}  validation AUC {value:.4f}  dropout {self.net.dropout.p:.3f}")
        self.val_auc.reset()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=1e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, self.lr, total_steps=int(self.trainer.estimated_stepping_batches))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class EaseDropout(L.Callback):
    """From 0.4 at the start down to 0.1 at the end."""

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        done = trainer.global_step / trainer.estimated_stepping_batches
        module.net.dropout.p = 0.4 - 0.3 * done


def main():
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    L.seed_everything(4, verbose=False)
    train = DataLoader(TensorDataset(*clicks(12800, 1)), batch_size=128, shuffle=True, drop_last=True)
    val = DataLoader(TensorDataset(*clicks(3840, 2)), batch_size=384)
    module = ClickModule(lr=8e-3)
    trainer = L.Trainer(
        max_epochs=4, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=1.0,
        callbacks=[EaseDropout()])
    trainer.fit(module, train, val)
    print("training AUC per epoch", " ".join(f"{v:.4f}" for v in module.curve))


if __name__ == "__main__":
    main()
