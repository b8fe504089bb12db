"""The backends of ``torch.compile``: ``openxla``, through AOTAutograd, and ``openxla_eval``, the graph as it is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from xlaprof.runtime import parity


def openxla(model: fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """``torch.compile(backend="openxla")``: forward and backward pass are a program each.

    Shapes, dtypes and numbers of the graph are compiled in; where they change, Dynamo's guards fail and it captures
    another graph. Nothing is compiled before the first call. Raises ``TypeError`` for options: there are none.
    """
    if options:
        raise TypeError(f'backend="openxla" has no options, got {", ".join(sorted(options))}')
    if parity.strict:
        specialize_numbers()
    compiled: Callable[..., Any] = _through_autograd()(model, list(example_inputs))
    return compiled


def openxla_eval(model: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """``torch.compile(backend="openxla_eval")``: for inference, without AOTAutograd. No gradient passes."""
    return _compiler(model, example_inputs)


@functools.cache
def _through_autograd() -> Any:
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    # The backward program computes cheap values again (a transposed weight), instead of having them as inputs.
    return aot_autograd(
        fw_compiler=_boxed, partition_fn=min_cut_rematerialization_partition, keep_inference_input_mutations=True
    )


def _compiler(model: fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
    """A function that compiles ``model`` at its first call, for the arguments of that call."""
    run: Callable[..., Any] | None = None

    def call(*args: Any) -> Any:
        nonlocal run
        if run is None:
            from . import bridge  # not before it is used: it imports much of torch.fx

            run = bridge.extract_compiled_graph(model, args)
        return run(*args)

    return call


def _boxed(model: fx.GraphModule, example_inputs: Any) -> Callable[[list[Any]], Any]:
    """:func:`_compiler` that takes its arguments in a list and empties it, which frees tensors saved for backward."""
    run = _compiler(model, example_inputs)

    def call(args: list[Any]) -> Any:
        given = tuple(args)
        args.clear()
        return run(*given)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def install() -> None:
    """Replace PyTorch's own backends of these names, which need a ``torch_xla``. Dynamo's registry has been imported.

    Entry points could not: Dynamo prefers a registered backend of the same name.
    """
    from torch._dynamo.backends import registry

    for backend in (openxla, openxla_eval):
        name = backend.__name__
        registry._COMPILER_FNS.pop(name, None)
        registry.register_backend(backend, name, tags=("experimental",) if backend is openxla_eval else ())


def specialize_numbers() -> None:
    """Let Dynamo specialise on floats that a program read while parity is strict; restore its option afterwards."""
    global _specialize
    from torch._dynamo import config

    if parity.strict and _specialize is None:
        _specialize, config.specialize_float = config.specialize_float, True
    elif not parity.strict and _specialize is not None:
        config.specialize_float, _specialize = _specialize, None


_specialize: bool | None = None  # Dynamo's option before
parity.on_change.append(specialize_numbers)
