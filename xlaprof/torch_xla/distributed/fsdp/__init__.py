"""``torch_xla.distributed.fsdp``: parameters divided among processes."""

from xlaprof.torch_xla._served import served

__getattr__, __dir__ = served(__name__)
