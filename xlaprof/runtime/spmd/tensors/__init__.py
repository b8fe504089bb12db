"""Sharded tensors: the sharding of a tensor, its shards, and the wrapper that shows them."""
