"""``torch_xla.distributed.spmd``, customarily ``xs``: one process, values laid out over all devices."""

from xlaprof.torch_xla._served import served

__getattr__, __dir__ = served(__name__)
