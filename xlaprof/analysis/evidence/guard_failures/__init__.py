"""Guards of ``torch.compile`` that failed: which versions made for that are mistakes, and what is said of them."""
