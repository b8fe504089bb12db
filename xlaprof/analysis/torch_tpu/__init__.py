"""TorchTPU's batches of deferred operations, from the totals: what is said of all, and what is compiled again."""
