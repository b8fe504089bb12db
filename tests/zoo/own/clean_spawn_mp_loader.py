"""xmp.spawn on one process: MpDeviceLoader, optimizer_step, accuracy summed on the device, a closure at the end of an epoch."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.runtime as xr


def _mp_fn(index):
    torch.manual_seed(1)
    device = xm.xla_device()
    x = torch.randn(160, 12)
    train = DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=16, shuffle=True, drop_last=True)
    loader = pl.MpDeviceLoader(train, device)
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 2)).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.1 * xr.world_size())
    for epoch in range(3):
        correct = torch.zeros((), device=device)
        for xb, yb in loader:
            opt.zero_grad()
            logits = model(xb)
            F.cross_entropy(logits, yb).backward()
            xm.optimizer_step(opt)
            correct += (logits.argmax(1) == yb).float().sum()
        xm.add_step_closure(lambda e, c: xm.master_print(f"epoch {e}: {c.item() / 160:.2f}"), args=(epoch, correct))
        xm.mark_step()


if __name__ == "__main__":
    xmp.spawn(_mp_fn, nprocs=1)
