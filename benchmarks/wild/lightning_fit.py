"""Train with PyTorch Lightning's Trainer: a module with its own steps, validation after each epoch, metrics logged."""

import logging
import tempfile

import pytorch_lightning as pl
import torch
from _session import IS_XLA, compiled, finish, sync
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))
        self.losses = []

    def training_step(self, batch, index):
        inputs, labels = batch
        loss = nn.functional.cross_entropy(call(self.net, inputs), labels)
        self.losses.append(loss.detach())
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, index):
        inputs, labels = batch
        self.log("accuracy", (call(self.net, inputs).argmax(-1) == labels).float().mean())

    def on_train_batch_end(self, outputs, batch, index):
        sync()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


call = compiled(lambda net, inputs: net(inputs))
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
torch.manual_seed(0)
train = DataLoader(TensorDataset(torch.randn(90, 16), torch.randint(0, 3, (90,))), batch_size=8)
valid = DataLoader(TensorDataset(torch.randn(32, 16), torch.randint(0, 3, (32,))), batch_size=8)
module = Classifier()
trainer = pl.Trainer(
    accelerator="tpu" if IS_XLA else "cpu", devices=1, max_epochs=3, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=5, default_root_dir=tempfile.mkdtemp(),
)  # fmt: skip
trainer.fit(module, train, valid)
finish(module.losses)
