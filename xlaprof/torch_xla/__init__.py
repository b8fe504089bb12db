"""PyTorch/XLA's interface over :mod:`xlaprof.runtime`: scripts written for ``torch_xla`` run unchanged.

::

    import xlaprof.torch_xla                 # once, before the first of:
    import torch_xla
    import torch_xla.core.xla_model as xm

``xlaprof run script.py`` does the first line for a script. The modules have PyTorch/XLA's names, signatures and
defaults and no logic beyond that: they call the runtime (:mod:`xlaprof.import_hook` has the mechanism). Where
PyTorch/XLA itself is installed, ``import torch_xla`` and ``import xlaprof.torch_xla`` both import that.
"""

from __future__ import annotations

import sys as _sys
from typing import Any as _Any

from xlaprof import import_hook as _hook
from xlaprof.torch_xla._served import served as _served

_hook.serve()

if _hook.installed() is not None:
    import torch_xla as _real

    _sys.modules[__name__] = _real
else:
    from xlaprof.torch_xla import _environment  # what PyTorch/XLA sets before its runtime is loaded

    _environment.prepare()

    import xlaprof.runtime as _runtime

    assert _runtime
    _hook.serve_children()
    _sys.modules[_hook.NAME] = _sys.modules[__name__]

    _environment.finish()

    from xlaprof.runtime.instruments import graph_dump as _saving

    def _rendered(kind: str, tape: _Any, graph: _Any) -> str:
        from xlaprof.torch_xla import _graphs

        return _graphs.rendered(kind, tape, graph)

    _saving.render = _rendered

__getattr__, __dir__ = _served(__name__)
