"""Checkpoints of tensors that are sharded over several devices, by ``torch.distributed.checkpoint``."""

from .manager import CheckpointManager
from .planners import SPMDLoadPlanner, SPMDSavePlanner
from .states import prime_optimizer
