"""``xla`` tensors in Dynamo, for any backend.

Dynamo has a table of the types it knows. An object of any other tensor class is a user's object, whose Python it traces
*into*: here our dispatch function and the tape. So our class is added beside ``torch.Tensor``: an input becomes a fake
tensor on ``xla:0``, and operations on it become nodes of the graph.

Between two graphs, Dynamo looks at every frame that starts. It skips ours, and whatever they call.
"""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

import xlaprof
from xlaprof.runtime.dispatch import special
from xlaprof.runtime.pytorch import optimizers, torch_module
from xlaprof.runtime.trace import tensor
from xlaprof.runtime.trace.tensor import XLATensor

from . import constants

constants.constant(optimizers.devices_with_fused)

#: our modules that are traced: the scopes that a user's compiled function enters, and layers written in PyTorch
_TRACED = ("xlaprof.recording.trace", "xlaprof.torch_xla.experimental.xla_quantized_matmul")


def _skipped(package: str, path: Iterable[str]) -> Iterator[str]:
    """The files below ``package`` that are never traced, folders as a whole where nothing in them is.

    No package is imported for it: ``xlaprof.torch_xla`` would make programs find ``torch_xla``.
    """
    for module in pkgutil.iter_modules(path):
        name = f"{package}.{module.name}"
        places = [os.path.join(folder, module.name) for folder in path]
        if any(traced.startswith(f"{name}.") for traced in _TRACED):
            yield from _skipped(name, places)
        elif name not in _TRACED:
            yield from (f"{place}/" if module.ispkg else f"{place}.py" for place in places)


def install() -> None:
    """Make Dynamo know our tensors and functions; ``torch._dynamo`` has been imported."""
    _register_type()
    _skip_frames()
    _know_accelerator()
    constants.install()


def _register_type() -> None:
    """Make Dynamo treat our tensors as PyTorch's own, like those of devices in C++.

    There is no public way, so two private objects are changed: the table of types, and the function that recognises
    tensor subclasses (ours is no such subclass: it holds no other tensors and overrides no functions). Raises
    ``RuntimeError`` where this PyTorch has others.
    """
    try:
        from torch._dynamo.variables import builder

        for trace_numpy in (True, False):  # kept by this setting
            table = builder.VariableBuilder._type_dispatch_impl(trace_numpy)
            table[XLATensor] = table[torch.Tensor]
        builder.infer_subclass_type = _plain(builder.infer_subclass_type)  # type: ignore[assignment]
    except (ImportError, AttributeError, TypeError, KeyError) as error:
        raise RuntimeError(
            f"torch.compile of torch {torch.__version__} cannot trace tensors on xla "
            f"({type(error).__name__}: {error}): use a torch that xlaprof supports (pip show xlaprof)"
        ) from error


def _plain(infer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def infer_subclass_type(value: Any) -> Any:
        return None if type(value) is XLATensor else infer(value)

    return infer_subclass_type


def _know_accelerator() -> None:
    """Put our functions of ``torch.accelerator`` beside PyTorch's in tables that were made when Dynamo was imported."""
    from torch._dynamo.variables import torch as variables

    tables = [
        getattr(variables, name, {}) for name in ("constant_fold_functions", "constant_fold_functions_need_guards")
    ]
    for name in torch_module.ANSWERS:
        answer = getattr(torch.accelerator, name, None)
        for table in tables:
            if getattr(answer, "__wrapped__", None) in table:
                table[answer] = None
    variables.TorchInGraphFunctionVariable._get_handlers.cache_clear()


def _skip_frames() -> None:
    from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
    from torch._dynamo import trace_rules

    trace_rules.SKIP_DIRS.extend(_skipped("xlaprof", xlaprof.__path__))
    for module in ("jax", "jaxlib"):
        trace_rules.add(module)  # which compiles the expression of them all
    recursively = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
    # The functions by which PyTorch enters the runtime; all factories are of one code.
    zeros: Any = special._factory(torch.ops.aten.zeros.default)
    for function in (*tensor.dispatchers, zeros, special.empty, special.empty_strided, special.copy_from):
        set_code_exec_strategy(function.__code__, recursively)
