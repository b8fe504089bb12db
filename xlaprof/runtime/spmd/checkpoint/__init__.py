"""Checkpoints of tensors that lie over several devices, by ``torch.distributed.checkpoint``."""

from .manager import CheckpointManager
from .planners import SPMDLoadPlanner, SPMDSavePlanner
from .prime import prime_optimizer

__all__ = ["CheckpointManager", "SPMDLoadPlanner", "SPMDSavePlanner", "prime_optimizer"]
