"""``xlaprof doctor``: a program under one layer of ``torch.compile`` after the other, to find the one at fault.

The ladder is that of PyTorch's troubleshooting guide (docs.pytorch.org, "torch.compile Troubleshooting", backends as
an ablation): each layer does what the one before it does, and one thing more.
"""
