"""Guards of ``torch.compile`` that failed: which of the versions made for that are mistakes, and what is said of them."""
