"""Wrapping the modules that a policy chooses, for both kinds of fully sharded training.

``policy(module=m, recurse=True, unwrapped_params=n)`` decides whether to descend into ``m``, and with
``recurse=False`` whether to wrap it; ``n`` is the number of parameters that are not wrapped yet. For PyTorch's own
policies that keyword is ``nonwrapped_numel``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container
from typing import Any, ClassVar

from torch import nn

Types = Container[type[nn.Module]]


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Every module."""
    return True


def lambda_auto_wrap_policy(
    module: nn.Module, recurse: bool, unwrapped_params: int, lambda_fn: Callable[[nn.Module], bool]
) -> bool:
    """The modules for which ``lambda_fn`` is true."""
    return recurse or lambda_fn(module)


def transformer_auto_wrap_policy(
    module: nn.Module, recurse: bool, unwrapped_params: int, transformer_layer_cls: set[type[nn.Module]]
) -> bool:
    """The modules of these classes."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(
    module: nn.Module,
    recurse: bool,
    unwrapped_params: int,
    min_num_params: int = int(1e8),
    force_leaf_modules: set[type[nn.Module]] | None = None,
    exclude_wrap_modules: set[type[nn.Module]] | None = None,
) -> bool:
    """Modules with at least ``min_num_params`` parameters.

    Not those of ``exclude_wrap_modules``, and nothing in those of ``force_leaf_modules``.
    """
    if recurse:
        never = _attribute("FORCE_LEAF_MODULES") if force_leaf_modules is None else force_leaf_modules
    else:
        never = _attribute("EXCLUDE_WRAP_MODULES") if exclude_wrap_modules is None else exclude_wrap_modules
    return unwrapped_params >= min_num_params and not isinstance(module, tuple(never))


def _attribute(name: str) -> set[type[nn.Module]]:
    """A default that users can read, and change, on the policy."""
    found: set[type[nn.Module]] = getattr(size_based_auto_wrap_policy, name)
    return found


size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES = {nn.ModuleList, nn.ModuleDict}  # type: ignore[attr-defined]
size_based_auto_wrap_policy.FORCE_LEAF_MODULES = {nn.MultiheadAttention}  # type: ignore[attr-defined]


def recursive_wrap(
    module: nn.Module,
    auto_wrap_policy: Callable[..., bool],
    wrapper_cls: Callable[..., nn.Module],
    ignored_modules: Any = (),
    ignored_params: Any = (),
    only_wrap_children: bool = False,
    **kwargs: Any,
) -> tuple[nn.Module, int]:
    """Wrap modules in ``module`` that ``auto_wrap_policy`` chooses, inner ones first, by ``wrapper_cls(m, **kwargs)``.

    ``module`` itself is not wrapped with ``only_wrap_children``. Returns it, and how many parameters are wrapped now.
    Raises ``AssertionError`` where a module inside is wrapped already.
    """
    assert auto_wrap_policy is not None, "Must specify auto_wrap_policy."
    assert wrapper_cls is not None, "Must specify wrapper_cls"
    skipped, kept = {id(m) for m in ignored_modules}, {id(p) for p in ignored_params}
    if isinstance(wrapper_cls, type):
        for name, child in module.named_modules():
            assert id(child) in skipped or not isinstance(child, wrapper_cls), f"{name} is wrapped already"
    decide = _with_its_keyword(auto_wrap_policy)
    count = sum(p.numel() for p in module.parameters() if id(p) not in kept)
    if not decide(module, True, count):
        return module, 0
    wrapped = 0
    for name, child in module.named_children():
        if id(child) in skipped:
            continue
        changed, more = recursive_wrap(child, auto_wrap_policy, wrapper_cls, ignored_modules, ignored_params, **kwargs)
        setattr(module, name, changed)
        wrapped += more
    if only_wrap_children or not decide(module, False, count - wrapped):
        return module, wrapped
    overrides = getattr(module, "_wrap_overrides", {})
    return wrapper_cls(module, **{**kwargs, **overrides}), count


def _with_its_keyword(policy: Callable[..., bool]) -> Callable[[nn.Module, bool, int], bool]:
    theirs = "nonwrapped_numel" in inspect.signature(policy).parameters
    name = "nonwrapped_numel" if theirs else "unwrapped_params"
    return lambda module, recurse, count: policy(module=module, recurse=recurse, **{name: count})


class Wrapper(nn.Module):
    """A module around another one, whose attributes it has too."""

    _inner: ClassVar[str]  # the attribute that holds the wrapped module

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__(self._inner), name)

    def __getitem__(self, key: int) -> Any:
        return getattr(self, self._inner)[key]

    @classmethod
    def _require_wrappable(cls, module: nn.Module) -> None:
        """Raise ``RuntimeError`` for a module that is wrapped, or has no ``forward``."""
        if isinstance(module, cls):
            raise RuntimeError(
                "Cannot wrap a module that is already wrapped with FSDP. For nested FSDP, first wrap the inner child "
                "modules before wrapping the outer parent module."
            )
        if type(module).forward is nn.Module.forward and "forward" not in vars(module):
            raise RuntimeError(
                "The module wrapped by FSDP *must define a `forward` method and call it during the module's forward "
                f"pass for FSDP to work correctly*: {type(module).__name__} has none; wrap its children, or the module "
                "that calls them"
            )

    @classmethod
    def _wrap_children(cls, module: nn.Module, policy: Any, wrapper: Any, **kwargs: Any) -> None:
        """Wrap the children that ``policy`` chooses, by ``wrapper`` or this class.

        Raises ``ValueError`` where a module inside is wrapped already.
        """
        for name, child in module.named_modules():
            if isinstance(child, cls):
                kind = cls.__name__.removeprefix("Xla")
                raise ValueError(f"Expected {name} to NOT be {kind} if using an `auto_wrap_policy`")
        recursive_wrap(module, policy, wrapper or cls, only_wrap_children=True, **kwargs)
