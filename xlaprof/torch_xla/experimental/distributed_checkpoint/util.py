"""``torch_xla.experimental.distributed_checkpoint.util``."""

from xlaprof.runtime.spmd.checkpoint import prime_optimizer

__all__ = ["prime_optimizer"]
