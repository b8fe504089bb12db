"""The usual launcher: xmp.spawn, MpDeviceLoader, and a progress bar that shows the loss."""
import io
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp


class Bar:
    def __init__(self, loader, out):
        self.loader, self.out = loader, out

    def __iter__(self):
        yield from self.loader

    def set_postfix(self, **shown):
        print(", ".join(f"{name}={value}" for name, value in shown.items()), file=self.out)


def _mp_fn(index, flags):
    torch.manual_seed(flags["seed"])
    device = xm.xla_device()
    x = torch.randn(192, 20)
    data = TensorDataset(x, x[:, :4].argmax(1))
    loader = pl.MpDeviceLoader(DataLoader(data, batch_size=16, shuffle=True), device)
    model = nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 4)).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.2)
    for epoch in range(2):
        bar = Bar(loader, io.StringIO())
        for xb, yb in bar:
            opt.zero_grad()
            loss = F.cross_entropy(model(xb), yb)
            loss.backward()
            xm.optimizer_step(opt)
            bar.set_postfix(loss=f"{loss:.3f}")
    xm.master_print("done")


if __name__ == "__main__":
    xmp.spawn(_mp_fn, args=({"seed": 3},), nprocs=1)
