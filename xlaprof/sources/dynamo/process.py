"""What Dynamo's own frames know while it compiles: new values of guards, all guards that fail, the caller.

Dynamo writes its records while its functions are on the stack, with the frame of the user's function and the versions
compiled before among their locals. These are only read; nothing is called that guards do not call themselves. Where
another PyTorch has other frames, less is known.
"""

from __future__ import annotations

import ast
import builtins
import enum
import re
import sys
import threading
from collections.abc import Iterable
from itertools import combinations, islice
from math import prod
from time import perf_counter_ns
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

from xlaprof.recording import stacks
from xlaprof.recording.stacks import RawFrame
from xlaprof.text.strings import clip

from .breaks import user_name
from .guards import Guard, Reason, parse_guard, subject

#: comparing with the versions compiled before takes at most so long
BUDGET_NS = 50_000_000
_DEEPEST = 1_000
_SHOWN = 60  # characters of a Python value
_OF_SIZE = frozenset({"shape", "size bound", "stride", "rank"})  # kinds of guards
_OF_MODE = frozenset({"mode", "training"})

_UNKNOWN = object()


class Missed(NamedTuple):
    """A frame whose guards all failed."""

    code: CodeType
    locals: dict[str, Any]
    scope: dict[str, Any]
    entries: list[Any]  # the versions compiled before, the newest first
    #: the arguments of the function; None where the frame is the function itself, and not what follows a graph break
    given: dict[str, Any] | None


def missed() -> Missed | None:
    """The frame that is being compiled again, while Dynamo reports why; None where this PyTorch does it otherwise."""
    frame = frame_of("get_and_maybe_log_recompilation_reasons")
    if frame is None:
        return None
    held = frame.f_locals
    user, entries = held.get("frame"), held.get("cache_entries")
    if user is None or not isinstance(entries, list):
        return None
    scope = {"G": user.f_globals, "L": user.f_locals, "__builtins__": builtins}
    for entry in entries[:1]:
        scope |= getattr(entry.guard_manager, "closure_vars", None) or {}
    return Missed(user.f_code, user.f_locals, scope, entries, _given(user.f_code))


def _given(code: CodeType) -> dict[str, Any] | None:
    """The arguments of the function of which ``code`` is what follows a graph break: it is on the stack, cut in two."""
    name, resumed = user_name(code.co_name)
    if not resumed:
        return None
    frame = frame_of(name, code.co_filename)
    if frame is None:
        return {}
    whole, held = frame.f_code, frame.f_locals
    count = whole.co_argcount + whole.co_kwonlyargcount
    return {name: held[name] for name in (*whole.co_varnames[:count], *whole.co_freevars) if name in held}


def compiling() -> tuple[CodeType, dict[str, Any], Any] | None:
    """Code, locals and backend of the frame that is being compiled, while it is."""
    frame = frame_of("_compile", "convert_frame.py")
    if frame is None:
        return None
    held = frame.f_locals
    code, values = held.get("code"), held.get("locals")
    if not isinstance(code, CodeType) or not isinstance(values, dict):
        return None
    return code, values, held.get("compiler_fn")


def bucket() -> int:
    """Bytes of a bucket of gradients, while a graph is split for DistributedDataParallel; 0: not known."""
    frame = frame_of("compile_fn", "backends/distributed.py")
    size = getattr(frame.f_locals.get("self"), "bucket_bytes_cap", 0) if frame is not None else 0
    return size if isinstance(size, int) and size > 0 else 0


def dynamic() -> str:
    """What ``torch.compile`` was told as ``dynamic``, while it compiles: "True", "False" or "" for nothing."""
    config: Any = sys.modules.get("torch._dynamo.config")
    if not getattr(config, "assume_static_by_default", True):
        return "True"
    return "" if getattr(config, "automatic_dynamic_shapes", True) else "False"


def named_files(numbers: Iterable[int]) -> dict[int, str]:
    """The files that PyTorch's trace has given these numbers."""
    structured: Any = sys.modules.get("torch._logging.structured")
    table, wanted = getattr(structured, "INTERN_TABLE", None) or {}, set(numbers)
    return {number: name for name, number in list(table.items()) if number in wanted}


def is_module(value: Any) -> bool:
    """Whether this is a model, or a part of one."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def backend_name(backend: Any) -> str:
    """Name of a backend, say ``inductor``, under what Dynamo wraps around it."""
    for _ in range(8):
        name = getattr(backend, "compiler_name", None) or getattr(backend, "_compiler_name", None)
        if isinstance(name, str) and name:
            return name
        inner = getattr(backend, "_torchdynamo_orig_backend", None) or getattr(backend, "func", None)
        if inner is None:
            break
        backend = inner
    name = getattr(backend, "__name__", None)
    return name if isinstance(name, str) else type(backend).__name__


def caller() -> tuple[RawFrame, ...]:
    """The user's lines that called the compiled function, outside of all that Dynamo runs."""
    frame: FrameType | None = sys._getframe(1)
    depth, outside = 0, 0
    while frame is not None and depth < _DEEPEST:
        depth += 1
        if frame.f_code.co_filename.endswith(_EVAL_FRAME):
            outside = depth
        frame = frame.f_back
    found = stacks.user_frames(skip=outside)
    if stacks.is_users(found) or threading.current_thread() is threading.main_thread():
        return found
    # a backward graph on a GPU: a thread of PyTorch's goes through it, for the line at which the main thread waits
    return _backward() or found


def _backward() -> tuple[RawFrame, ...]:
    """The user's lines at which the main thread is in a backward pass; empty where it is in none."""
    with stacks.looking:
        stack = stacks.running(threading.main_thread().ident or 0)
        inside = bool(stack) and stack[0].f_code.co_name == stacks.WAITS_FOR_BACKWARD
        found = stacks.user_frames_of(stack[0]) if inside else ()
        del stack
    return found


_EVAL_FRAME = ("/torch/_dynamo/eval_frame.py", "\\torch\\_dynamo\\eval_frame.py")


def frame_of(function: str, file: str = "") -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_DEEPEST):
        if frame is None or (frame.f_code.co_name == function and frame.f_code.co_filename.endswith(file)):
            return frame
        frame = frame.f_back
    return None


# -- what differs ---------------------------------------------------------------------------------------


def differences(now: Missed, reasons: tuple[Reason, ...]) -> tuple[str, list[Guard]]:
    """The compiled version that comes nearest, and each of its guards that fails, with both values.

    Dynamo reports only the first guard of a version that fails, and that comes first here; the nearest version is the
    one of whose guards the fewest fail, among those of the modes of PyTorch (as grad_mode) and of modules (training)
    that are on: of equals one that was made for these sizes, for sizes are asked first.
    """
    best: tuple[str, list[Guard]] | None = None
    least = (False, 0, False)
    deadline = perf_counter_ns() + BUDGET_NS
    reported = {reason.against: reason.guard for reason in reasons}
    for entry in now.entries:
        against = str(getattr(entry, "compile_id", ""))
        guard = reported.get(against)
        if guard is None:
            continue
        found = [_with_values(guard, entry, now)]
        found += _others(entry, now, found[0], deadline)
        if any(one.kind == "shape" for one in found):
            found = [one for one in found if one.kind != "stride" or not _is_cut_out(one, entry, now)]
        distance = (any(one.kind in _OF_MODE for one in found), len(found), found[0].kind in _OF_SIZE)
        if best is None or distance < least:
            best, least = (against, found), distance
        if perf_counter_ns() > deadline:
            break
    if best is None and reasons:
        best = reasons[0].against, [_with_values(reasons[0].guard, None, now)]
    return best or ("", [])


def _others(entry: Any, now: Missed, first: Guard, deadline: int) -> list[Guard]:
    found = []
    for part in getattr(entry.guard_manager, "code_parts", None) or ():
        if perf_counter_ns() > deadline:
            break
        for guard in _failed(part, now):
            if (guard.kind, guard.subject) == (first.kind, first.subject) and guard.dim in (first.dim, -1):
                continue
            if first.kind == "shape" and guard.kind in ("shape", "stride") and guard.subject == first.subject:
                continue  # another size has other strides, and may have several other sizes
            found.append(guard)
    return found


_TENSOR = re.compile(
    r"^check_tensor\((?P<source>.*), (?:Tensor|Parameter|\w+), DispatchKeySet\(.*?\), (?P<dtype>torch\.\w+), "
    r"device=(?P<device>\S+), requires_grad=(?P<grad>True|False), size=\[(?P<size>[^\]]*)\]"
    r"(?:, stride=\[(?P<stride>[^\]]*)\])?"
)


#: guards on PyTorch's state: Dynamo reports them as the first that failed
_STATE = ("___check_global_state", "___check_torch_function_mode", "torch.")


def _failed(part: Any, now: Missed) -> list[Guard]:
    """The guards in ``part`` of a version's that fail now."""
    if not isinstance(part, str) or part.startswith(_STATE):
        return []
    if found := _TENSOR.match(part):
        return _failed_tensor(found, now)
    code = re.sub(r", type=<.*$", "", part.partition("  #")[0].strip())
    if evaluate(code, now) is not False:
        return []
    guard = parse_guard(part)
    return [] if guard.kind == "guard" else [_with_values(guard, None, now)]


def _failed_tensor(found: re.Match[str], now: Missed) -> list[Guard]:
    tensor = evaluate(found["source"], now)
    if not is_tensor(tensor):
        return []
    name, source, text, failed = subject(found["source"]), found["source"], found[0], []
    if str(tensor.dtype) != found["dtype"]:
        old, new = found["dtype"].removeprefix("torch."), str(tensor.dtype).removeprefix("torch.")
        failed.append(Guard("dtype", name, old, new, text, source))
    if str(tensor.requires_grad) != found["grad"]:
        failed.append(Guard("requires_grad", name, found["grad"], str(tensor.requires_grad), text, source))
    sizes = _sizes(found["size"])
    if len(sizes) != tensor.ndim:
        failed.append(Guard("rank", name, _shape(found["dtype"], sizes), show(tensor), text, source))
        return failed
    for dim, (before, size) in enumerate(zip(sizes, tensor.shape, strict=True)):
        if before is not None and before != size:
            failed.append(Guard("shape", name, _shape(found["dtype"], sizes), show(tensor), text, source, dim))
            return failed  # other sizes have other strides
    strides = zip(_sizes(found["stride"] or ""), tensor.stride() if _is_strided(tensor) else (), strict=False)
    for dim, (before, stride) in enumerate(strides):
        if before is not None and before != stride:
            failed.append(Guard("stride", name, str(before), str(stride), text, source, dim))
            break
    return failed


def _with_values(guard: Guard, entry: Any, now: Missed) -> Guard:
    """``guard`` with its new value; for tensors with the whole shape before and now."""
    if guard.kind in ("shape", "rank", "stride", "size bound"):
        source = re.sub(r"\.(size|stride|storage_offset)\(\).*$", "", guard.source)
        tensor = evaluate(source, now)
        before = _compiled_shape(entry, source)
        if is_tensor(tensor) and guard.kind != "stride" and (before or guard.kind == "size bound"):
            return guard._replace(new=show(tensor), old=before)
        return guard
    if guard.kind == "mode":
        old, new = _mode(guard.subject)
        return guard._replace(old=old, new=new)
    if guard.new or not guard.source:
        return guard
    if (keys := _with_keys(guard, entry, now)) is not None:
        return keys
    value = evaluate(guard.source, now)
    if guard.source.startswith("___normalize_range_iter("):
        old, new = (_left(text) for text in (guard.old, repr(value)))
        return guard._replace(subject="what is left of the loop", old=old, new=new)
    if value is _UNKNOWN:
        return guard
    if guard.kind == "type" and isinstance(value, type):
        return guard._replace(new=value.__name__)
    if guard.kind == "object":
        return _with_objects(guard, value, now)
    if guard.kind == "value" and (old := _literal_type(guard.old)) and not isinstance(value, LITERALS):
        return guard._replace(kind="type", old=old, new=type(value).__name__)
    if guard.kind == "length" and evaluate(guard.text, now) is True:  # of a dict: the text says what is now the case
        guard = guard._replace(old=guard.text.rpartition(" ")[2])
    return guard._replace(subject=_free_variable(guard, now) or guard.subject, new=show(value))


_OF_DICT = re.compile(r"^(?:list\(dict\.keys\((?P<keys>.*)\)\)\[\d+\]|len\((?P<length>.*)\))$")
_KEY = re.compile(r"EQUALS_MATCH: list\(dict\.keys\((?P<of>.*)\)\)\[\d+\] == (?P<key>.*?)(?:\s+# .*)?$", re.MULTILINE)


def _with_keys(guard: Guard, entry: Any, now: Missed) -> Guard | None:
    """A guard on one key of a dict, or on their number, as one on all of its keys; None: it is none, or unknown."""
    found = _OF_DICT.match(guard.source)
    source = (found["keys"] or found["length"]) if found else ""
    held = evaluate(source, now) if source else None
    if not isinstance(held, dict):
        return None
    name, tree = subject(source), str(getattr(entry, "guard_manager", ""))  # these guards are nowhere else
    before = [known["key"] for known in _KEY.finditer(tree) if subject(known["of"]) == name]
    if not before:
        return None  # only their number matters
    old, new = (f"{{{', '.join(keys)}}}" for keys in (before, [show(key) for key in islice(held, _SHOWN)]))
    return guard._replace(kind="value", subject=f"the keys of {name}", old=clip(old, _SHOWN), new=clip(new, _SHOWN))


def _left(text: str) -> str:
    """The range that a begin, an end and a step stand for."""
    numbers = re.findall(r"-?\d+", text)
    return f"range({', '.join(numbers[:2] if numbers[2:] == ['1'] else numbers)})"


LITERALS = (bool, int, float, complex, str, bytes, type(None))
_CLOSURE = re.compile(r"^(.*)\.__closure__\[(\d+)\]\.cell_contents$")


def _literal_type(text: str) -> str:
    """The type of a Python literal; "" where the text is none."""
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return ""
    return "None" if value is None else type(value).__name__


def _free_variable(guard: Guard, now: Missed) -> str:
    """The name of the variable of an enclosing function that a guard is on."""
    found = _CLOSURE.match(guard.source)
    names = getattr(getattr(evaluate(found[1], now), "__code__", None), "co_freevars", ()) if found else ()
    return names[int(found[2])] if found and int(found[2]) < len(names) else ""


def _with_objects(guard: Guard, value: Any, now: Missed) -> Guard:
    """``guard`` with the name of the old object, where its id is found; a member of an Enum is a value."""
    known = [value for value in _namesakes(value, now.scope.get("G")) if id(value) == guard.ident]
    if known and isinstance(value, enum.Enum):
        return guard._replace(kind="value", old=show(known[0]), new=show(value))
    old = guard.old if guard.old != type(value).__name__ else f"another {guard.old}"
    return guard._replace(old=show(known[0]) if known else old, new=show(value))


def _namesakes(value: Any, scope: Any) -> list[Any]:
    """Candidates for the old object: the other members of the value's Enum, functions and classes of its module."""
    if isinstance(value, enum.Enum):
        return list(type(value).__members__.values())
    found = list(scope.values()) if isinstance(scope, dict) else []
    if isinstance(value, CodeType):
        return [one.__code__ for one in found if isinstance(one, FunctionType)]
    return [one for one in found if isinstance(one, FunctionType | type)]


def _compiled_shape(entry: Any, source: str) -> str:
    """The shape of a tensor that a version was compiled for; dynamic sizes are ``?``."""
    found = _compiled_tensor(entry, source)
    return _shape(found["dtype"], _sizes(found["size"])) if found is not None else ""


def _compiled_tensor(entry: Any, source: str) -> re.Match[str] | None:
    """What a version says of a tensor that it was compiled for."""
    name = subject(source)
    parts = getattr(entry.guard_manager, "code_parts", None) or () if entry is not None else ()
    checks = (_TENSOR.match(part) for part in parts if isinstance(part, str))
    return next((found for found in checks if found and subject(found["source"]) == name), None)


def _is_cut_out(guard: Guard, entry: Any, now: Missed) -> bool:
    """Whether a tensor whose stride changed was, and is, cut out of a larger one: its strides follow from a size of
    that, as rows of a table do from its width. One that is contiguous, or turned, has a layout of its own."""
    source = re.sub(r"\.stride\(\).*$", "", guard.source)
    found, tensor = _compiled_tensor(entry, source), evaluate(source, now)
    if found is None or not is_tensor(tensor) or not _is_strided(tensor):
        return False
    strides = zip(tensor.shape, _sizes(found["stride"] or ""), tensor.stride(), strict=False)
    dims = [(size, a, b) for size, a, b in strides if size != 1 and a is not None]  # those of size 1 mean nothing
    if not dims or _is_dense([(size, a) for size, a, _ in dims]) or tensor.is_contiguous():
        return False
    return all((a < b) == (c < d) for (_, a, c), (_, b, d) in combinations(dims, 2))


def _is_dense(dims: list[tuple[int, int]]) -> bool:
    """Whether sizes and strides are those of a contiguous tensor."""
    return all(stride == prod(size for size, _ in dims[at + 1 :]) for at, (_, stride) in enumerate(dims))


def _sizes(text: str) -> list[int | None]:
    return [int(part) if part.strip().lstrip("-").isdigit() else None for part in text.split(",") if part.strip()]


def _shape(dtype: str, sizes: list[int | None]) -> str:
    return f"{short(dtype)}[{','.join('?' if size is None else str(size) for size in sizes)}]"


def short(dtype: str) -> str:
    """ "f32" of "torch.float32"."""
    name = dtype.removeprefix("torch.")
    return "bf16" if name == "bfloat16" else re.sub(r"^(float|int|uint|complex)(\d+)$", lambda f: f[1][0] + f[2], name)


def _mode(name: str) -> tuple[str, str]:
    """Old and new value of a global state, where it can be asked."""
    torch: Any = sys.modules.get("torch")
    if name.startswith("grad_mode"):
        now = torch.is_grad_enabled()
        return str(not now), str(now)
    if found := re.match(r"autocast\((\w+)\)_enabled", name):
        now = torch.is_autocast_enabled(found[1])
        return str(not now), str(now)
    if name.startswith("default_dtype"):
        return "", str(torch.get_default_dtype()).removeprefix("torch.")
    return "", ""


# -- values ---------------------------------------------------------------------------------------------


def evaluate(source: str, now: Missed) -> Any:
    """The value of a guard's expression in the frame, evaluated as Dynamo does; ``_UNKNOWN`` where that fails."""
    try:
        return eval(source, now.scope, now.locals)
    except Exception:  # an index that is not there, an attribute that is gone: that is what differs
        return _UNKNOWN


def is_tensor(value: Any) -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _is_strided(tensor: Any) -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and tensor.layout == torch.strided


def show(value: Any) -> str:
    """A Python value for people. Of tensors and arrays the shape only: their values never enter a log."""
    if is_tensor(value):
        return f"{short(str(value.dtype))}[{','.join(map(str, value.shape))}]"
    if isinstance(value, float):
        return repr(value) if len(repr(value)) <= 12 else f"{value:.8g}"
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"  # str() of an IntEnum's is the number
    if isinstance(value, CodeType):
        return value.co_qualname
    if value is None or isinstance(value, bool | int | complex | str | bytes):
        return clip(repr(value), _SHOWN)
    if isinstance(value, type) or callable(value):
        name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
        if isinstance(name, str):
            return name
    if isinstance(value, list | tuple | dict | set | frozenset):
        return f"{type(value).__name__} of {len(value)}"
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.dtype | torch.device | torch.Size):
        return str(value)
    return type(value).__name__
