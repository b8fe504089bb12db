"""``torch_xla.amp.syncfree``: optimizers that skip a step without reading from the device."""

from .optimizers import SGD, Adam, AdamW

__all__ = ["SGD", "Adam", "AdamW"]
