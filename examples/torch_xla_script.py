"""A PyTorch/XLA training script, as its documents write them. Unmodified: it knows nothing of xlaprof.

xlaprof run examples/torch_xla_script.py
"""

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
from torch.utils.data import DataLoader, TensorDataset
from torch_xla.distributed.parallel_loader import MpDeviceLoader

torch.manual_seed(0)
device = xm.xla_device()
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
x = torch.randn(256, 8)
data = DataLoader(TensorDataset(x, x[:, :4].argmax(1)), batch_size=32, shuffle=True, drop_last=True)
loader = MpDeviceLoader(data, device)  # uploads ahead, and brings the barrier with each batch


def main() -> None:
    for epoch in range(3):
        total = torch.zeros((), device=device)
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            xm.optimizer_step(optimizer)
            total += loss.detach()
        xm.master_print(f"epoch {epoch}: loss {total.item() / len(loader):.3f}")
    print(torch_xla.__version__.split("+")[0], met.counter_value("UncachedCompile"), "compilations")


if __name__ == "__main__":
    main()
