"""``torch_xla.experimental.dynamo_mark_sharding``: defines ``torch.ops.xla.dynamo_mark_sharding``."""

from xlaprof.runtime import spmd as _spmd

assert _spmd
