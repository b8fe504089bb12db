"""``torch_xla._dynamo.dynamo_backend2``: the second backend, which is the first here: both lower through jax."""

from xlaprof.torch_xla._served import served as _served

__getattr__ = _served(__name__, {"dynamo_backend": "xlaprof.runtime.dynamo"})
