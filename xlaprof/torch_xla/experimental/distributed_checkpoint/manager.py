"""``torch_xla.experimental.distributed_checkpoint.manager``."""

from xlaprof.runtime.spmd.checkpoint import CheckpointManager
from xlaprof.runtime.spmd.checkpoint.manager import CheckpointMetadata as _CheckpointMetadata

__all__ = ["CheckpointManager", "_CheckpointMetadata"]
