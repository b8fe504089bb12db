"""What PyTorch needs from a device type: its guard, ``torch.xla``, autograd's threads, autocast, modules."""
