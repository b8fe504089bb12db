"""What to change so that ``torch.compile`` does not compile again: one sentence, and code where code says it better."""

from __future__ import annotations

import re
from collections.abc import Sequence

from xlaprof.events import Guard

_SIZES = re.compile(r"\[([\d, ]*)\]")
_MEMBER = re.compile(r"[^\W\d]\w*\.[^\W\d]\w*")  # of an Enum
_NUMBER = re.compile(r"-?[\d.]+(?:e[+-]?\d+)?")
#: backends that compile a program for every size, whatever Dynamo makes dynamic
_FIXED_SHAPES = ("openxla", "openxla_eval", "torchxla_trace_once", "tpu")

_RAISE = " Raising torch._dynamo.config.{limit} only helps where the number of versions is bounded."


def advice(guard: Guard, guards: Sequence[Guard], backend: str, limited: bool) -> str:
    """One sentence; of a limit that was hit, a second."""
    told = _advice(guard, guards, backend)
    return told + _RAISE.format(limit="recompile_limit") if limited else told


def _advice(guard: Guard, guards: Sequence[Guard], backend: str) -> str:
    name = guard.subject or "the value"
    match guard.kind:
        case "shape" | "stride":
            return _shape(guard, guards, backend)
        case "size bound":
            return _bound(guard, backend)
        case "rank":
            return (
                f"Give {name} the same number of dimensions at each call (unsqueeze it before), "
                "or compile a function for each."
            )
        case "dtype":
            return (
                f"Convert {name} to one dtype before the call: {name}.to(torch.{guard.old})."
                if guard.old
                else (f"Convert {name} to one dtype before the call.")
            )
        case "device":
            return f"Move {name} to one device before the call."
        case "requires_grad":
            return f"Call it with tensors that agree in requires_grad: {name}.detach() where no gradient is wanted."
        case "dispatch":
            return (
                "Call it with the same kind of tensor, in the same mode: torch.no_grad() throughout "
                "instead of now and then inference_mode()."
            )
        case "training":
            return "Switch train() and eval() per phase, not per step, and call each phase's steps in a row."
        case "mode":
            return f"Call it under the same {name} each time, or compile one function for each."
        case "value":
            return _value(guard, guards)
        case "length":
            return f"Keep {name} at one length, or stack it into one tensor (padded, with a mask) before the call."
        case "type":
            return f"Pass {name} with the same type at each call."
        case "object":
            return (
                f"Pass the same {name} each time: create it once, outside the loop, or compile one function for each."
            )
        case "keys" | "attribute":
            return f"Set {name} before the first call, and keep it."
        case "aliasing":
            return f"Pass different tensors ({name}): clone() one of them before the call."
        case "backend":
            return "Call torch.compile once, outside the loop, and with the same backend function each time."
        case "freed":
            return f"Keep {name} alive as long as the compiled function is used, instead of making a new one."
    return "Keep what the guard asks for the same at each call, or compile one function for each case."


def _shape(guard: Guard, guards: Sequence[Guard], backend: str) -> str:
    name, dim = guard.subject or "the input", max(guard.dim, 0)
    if guard.kind == "stride":
        return f"Call {name}.contiguous() before the call, so that its memory layout is the same each time."
    if "force_parameter_static_shapes" in guard.hint:
        return (
            f"{name} is a parameter, whose sizes are constants of the graph: keep its size, or set "
            "torch._dynamo.config.force_parameter_static_shapes = False."
        )
    if re.search(r"past_key_values|cache", name):
        return "Generate with a cache of fixed size (cache_implementation='static'), which does not grow by each token."
    before, now = _size(guard.old, dim), _size(guard.new, dim)
    sizes = {one for guard in guards for one in (_size(guard.old, dim), _size(guard.new, dim)) if one is not None}
    last = len(sizes) <= 2 and dim == 0 and before is not None and now is not None and now < before
    pad = (
        f"pad the last batch to {before} or pass drop_last=True to the DataLoader"
        if last
        else f"pad dimension {dim} of {name} to a few sizes"
    )
    if backend in _FIXED_SHAPES:
        return f"{pad[:1].upper()}{pad[1:]}: this backend compiles a program for every size."
    return (
        f"Mark the dimension dynamic before the first call, torch._dynamo.mark_dynamic({_variable(name)}, {dim}), "
        f"or compile with dynamic=True; or {pad}."
    )


def _bound(guard: Guard, backend: str) -> str:
    name, dim = guard.subject or "the input", max(guard.dim, 0)
    if _size(guard.new, dim) in (0, 1):
        size = _size(guard.new, dim)
        return (
            f"torch.compile compiles a size of 0 or 1 apart: pad dimension {dim} of {name} to 2 or more where it is "
            f"{size}, or call torch._dynamo.decorators.mark_unbacked({_variable(name)}, {dim}) before."
        )
    pad = f"pad dimension {dim} of {name} so that it stays on one side of that bound"
    return f"The code asks about this size: decide outside the compiled function, or {pad}."


def _value(guard: Guard, guards: Sequence[Guard]) -> str:
    name = guard.subject
    if re.search(r"\blr\b|param_groups", name):
        return (
            "Make the learning rate a tensor (optimizer = SGD(..., lr=torch.tensor(0.1))): "
            "its value is then no constant of the graph."
        )
    values = [value for one in guards for value in (one.old, one.new) if value]
    numbers = bool(values) and all(map(_NUMBER.fullmatch, values))
    if numbers and name.startswith("self."):
        return (
            f"Keep {name} in a tensor (a buffer of the module) instead of a Python number, "
            "or change it outside the compiled function."
        )
    if numbers:
        return f"Pass {name} as a tensor (torch.tensor({name})) instead of a Python number, or keep it constant."
    if set(values) <= {"True", "False", "None"} or any(value.startswith(("'", '"')) for value in values):
        return f"Keep {name} constant, compile one function for each of its few values, or turn it into a tensor."
    if values and all(map(_MEMBER.fullmatch, values)):
        return f"Keep {name} constant, or compile one function for each of its members that is used."
    return f"Keep {name} constant, or pass it as a tensor."


def remedy(guard: Guard, guards: Sequence[Guard], backend: str) -> str:
    """Code that does what the advice says; empty where the sentence is enough."""
    name = _variable(guard.subject)
    if guard.kind == "shape" and backend not in _FIXED_SHAPES and "force_parameter" not in guard.hint:
        dim = max(guard.dim, 0)
        return f"torch._dynamo.mark_dynamic({name}, {dim})  # before the first call\ny = compiled({name})"
    if guard.kind == "value" and _NUMBER.fullmatch(guard.new) and guard.subject.isidentifier():
        return f"compiled(..., {name}=torch.tensor({guard.new}))"
    return ""


def _variable(name: str) -> str:
    return name if name.replace(".", "").replace("_", "").isalnum() else "x"


def _size(shape: str, dim: int) -> int | None:
    found = _SIZES.search(shape)
    if found is None:
        return None
    sizes = [part.strip() for part in found[1].split(",") if part.strip()]
    return int(sizes[dim]) if dim < len(sizes) and sizes[dim].isdigit() else None
