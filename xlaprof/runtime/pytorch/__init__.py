"""What PyTorch asks of a device type: its guard, ``torch.xla``, autograd's threads, autocast, generators, modules."""
