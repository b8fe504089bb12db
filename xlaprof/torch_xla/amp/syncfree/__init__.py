"""``torch_xla.amp.syncfree``: optimizers that skip a step without asking the device whether to."""

from .optimizers import SGD, Adam, AdamW

__all__ = ["SGD", "Adam", "AdamW"]
