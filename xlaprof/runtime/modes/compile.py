"""``compile``: the operations of a function, a module or a ``with`` block are one graph, which runs where it ends.

Inside, operations are recorded as in lazy mode, whatever the mode outside. PyTorch/XLA's ``torch_xla.compile`` and
``torch_xla.step``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar, overload

from xlaprof.runtime.execution import guard
from xlaprof.runtime.tape import mode

from . import barriers, eager, sessions

F = TypeVar("F", bound=Callable[..., Any])


class Compiled(AbstractContextManager[None]):
    """The result of ``compile`` without a function: a context, and a decorator."""

    def __init__(self, name: str | None, full_graph: bool, limit: int | None, session: sessions.Session | None) -> None:
        self._name = name
        self._rules = full_graph, limit, session
        self._open: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        region = _region(self._name, *self._rules)
        region.__enter__()
        self._open.append(region)

    def __exit__(self, *error: Any) -> bool | None:
        return self._open.pop().__exit__(*error)

    def __call__(self, f: F) -> F:
        """``f``, each of whose calls is one graph."""
        name, rules = self._name or _name_of(f), self._rules

        @functools.wraps(f)
        def compiled(*args: Any, **kwargs: Any) -> Any:
            with _region(name, *rules):
                return f(*args, **kwargs)

        return compiled  # type: ignore[return-value]


@overload
def compile(f: F, *options: Any, **more: Any) -> F: ...
@overload
def compile(f: None = None, *options: Any, **more: Any) -> Compiled: ...
def compile(
    f: Callable[..., Any] | None = None,
    full_graph: bool | None = False,
    name: str | None = None,
    max_different_graphs: int | None = None,
    *,
    num_different_graphs_allowed: int | None = None,
) -> Any:
    """``f`` (a function or a module) compiled: each call records one graph, and runs it when the call returns.

    Pending operations run on entry. Without ``f``, it returns a decorator, which is also a context::

        @xr.compile(full_graph=True)
        def step(x, y): ...

    ``full_graph``: raise ``RuntimeError``, with the line and the reason, if something inside would run part of the
    graph early (a read, a fallback to the CPU, a barrier). ``name`` is for messages, by default the function's.
    ``max_different_graphs``: raise ``RuntimeError``, with the difference, when a call records one graph more than that;
    it is raised before anything is compiled, and the trace stays pending.
    ``num_different_graphs_allowed`` is its name in PyTorch/XLA 2.6.
    """
    if max_different_graphs is None:
        max_different_graphs = num_different_graphs_allowed
    session = sessions.session(f) if max_different_graphs is not None else None
    compiled = Compiled(name, bool(full_graph), max_different_graphs, session)
    return compiled if f is None else compiled(f)


def _name_of(f: Callable[..., Any]) -> str:
    return getattr(f, "__name__", None) or type(f).__name__


def step() -> Compiled:
    """The context of one training step: a barrier on entry, and one on exit (``torch_xla.step``)."""
    return compile()


@contextmanager
def _region(name: str | None, full_graph: bool, limit: int | None, session: sessions.Session | None) -> Iterator[None]:
    was_eager, was_allowed, outer = eager.is_eager_mode(), guard.get_allow_execution(), mode.graph_name
    if was_eager:
        eager.eager_mode(False)
    try:
        mode.graph_name = f"{name}_clear_pending" if name else outer
        barriers.cut("clear_pending")
        mode.graph_name = name or outer
        if full_graph:
            guard.set_allow_execution(False)
        try:
            yield
        except BaseException as error:
            guard.set_allow_execution(was_allowed)
            try:
                barriers.cut("compile")
            except Exception as another:  # the function's own error is raised
                error.add_note(f"what it had recorded failed too: {another}")
            raise
        guard.set_allow_execution(was_allowed)
        if session is not None and limit is not None:
            session.add(limit, name or "the function")
        barriers.cut("compile")
    finally:
        mode.graph_name = outer
        if was_eager:
            eager.eager_mode(True)
