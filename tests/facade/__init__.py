"""PyTorch/XLA's interface, served: its names, its scripts, the libraries that ask for it."""
