"""The backends of ``torch.compile``: ``openxla``, through AOTAutograd, and ``openxla_eval``, the graph as it is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from xlaprof.runtime import parity


def openxla(model: fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """``torch.compile(backend="openxla")``: forward and backward pass are a program each.

    Shapes, dtypes and numbers of the graph are compiled in; Dynamo's guards ask for another one where they change.
    Nothing is compiled before the first call. Raises ``TypeError`` for options: there are none.
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


def dynamo_backend(fx_graph: fx.GraphModule, args: Sequence[Any]) -> Callable[..., Any]:
    """:func:`openxla` under the name of PyTorch/XLA's second backend (``torch_xla._dynamo.dynamo_backend2``)."""
    return openxla(fx_graph, args)


@functools.cache
def _through_autograd() -> Any:
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    # What the backward program can make again for next to nothing (a transposed weight) is not handed to it.
    return aot_autograd(
        fw_compiler=_boxed, partition_fn=min_cut_rematerialization_partition, keep_inference_input_mutations=True
    )


def _compiler(model: fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
    """A function that compiles ``model`` when it is first called: then what it is called with is known."""
    run: Callable[..., Any] | None = None

    def call(*args: Any) -> Any:
        nonlocal run
        if run is None:
            from . import bridge  # not before it is used: it imports much of torch.fx

            run = bridge.extract_compiled_graph(model, args)
        return run(*args)

    return call


def _boxed(model: fx.GraphModule, example_inputs: Any) -> Callable[[list[Any]], Any]:
    """:func:`_compiler` that takes its arguments in a list and empties it: tensors saved for backward are let go of."""
    run = _compiler(model, example_inputs)

    def call(args: list[Any]) -> Any:
        given = tuple(args)
        args.clear()
        return run(*given)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def install() -> None:
    """Register both in place of the ones PyTorch brings, which need a ``torch_xla``; Dynamo's registry is imported.

    An entry point could not: what is registered by the same name comes first.
    """
    from torch._dynamo.backends import registry

    for backend in (openxla, openxla_eval):
        name = backend.__name__
        registry._COMPILER_FNS.pop(name, None)
        registry.register_backend(backend, name, tags=("experimental",) if backend is openxla_eval else ())


def specialize_numbers() -> None:
    """While parity is strict have Dynamo specialise on floats that a program read; else as it does otherwise."""
    global _specialize
    from torch._dynamo import config

    if parity.strict and _specialize is None:
        _specialize, config.specialize_float = config.specialize_float, True
    elif not parity.strict and _specialize is not None:
        config.specialize_float, _specialize = _specialize, None


_specialize: bool | None = None  # what Dynamo's option was
parity.on_change.append(specialize_numbers)
