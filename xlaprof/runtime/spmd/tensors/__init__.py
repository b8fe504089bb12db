"""Sharded tensors: how a tensor lies, its shards, and the wrapper that shows them."""
