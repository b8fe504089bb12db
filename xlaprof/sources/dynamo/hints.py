"""A graph break in plain words: one sentence why, one sentence what to change.

PyTorch's own texts are written for its developers: a hint like "Please report an issue to PyTorch" helps nobody whose
training is slow. Where a better one is known it stands here, by the break's number in PyTorch's registry; elsewhere the
first useful one of PyTorch's hints.
"""

from __future__ import annotations

import ast
import linecache
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from xlaprof.events.dynamo import FAILS
from xlaprof.recording.stacks import acts, is_library
from xlaprof.text.strings import package_path

from .asked import asking, ends_a_loop
from .breaks import Break

if TYPE_CHECKING:
    from xlaprof.recording.stacks import RawFrame

#: how hints begin that say nothing about this program
_USELESS = (
    "Please report an issue",
    "Please file an issue",
    "File an issue",
    "This is likely to be a Dynamo bug",
    "It may be possible to write Dynamo tracing rules",
    "Your code may result in an error when running in eager",
    "This graph break is fundamental",
    "This graph break may be difficult to debug",
    "This graph break may have been caused by an earlier",
    "If it is a Python builtin, please file an issue",
    "If the context manager seems like it should be supported",
    "Avoid calling builtin",
    "If you are attempting to call a logging function",
    "Dynamo has detected that tracing the code will result in an error",
    "If it is a third-party C/C++ Python extension",
)

_PRINT = "Remove the print from the compiled function, or print after it returns."
_LOG = (
    "Log after the compiled function returns, or add the function to "
    "torch._dynamo.config.ignore_logging_functions so that compiled code leaves it out."
)
_BRANCH = "Replace the condition on a tensor by torch.where or torch.cond, or decide on a Python value outside."
_GOES_ON = (
    "Run the loop a fixed number of times, as many as most calls need, without asking; or compile only what one turn "
    "of it does, and leave the loop in Python. No graph asks a tensor whether to go on, and with torch.where in place "
    "of the condition it holds the largest number of turns."
)
_TENSOR = (
    "Keep the value a tensor (torch.where, torch.clamp, arithmetic) instead of reading it in the compiled function"
)
_ITEM = f"{_TENSOR}; on inductor torch._dynamo.config.capture_scalar_outputs = True keeps it in the graph."
_LIST = (
    "Compute with the tensor itself (gather, topk, torch.where) instead of Python numbers; or, where Python has to, "
    "end the compiled function before this line, and let it return the tensor that is read."
)
_FIXED = "Keep the shape fixed (torch.where or a multiplication by the mask instead of selecting)"
_SHAPE = f"{_FIXED}; on inductor torch._dynamo.config.capture_dynamic_output_shape_ops = True keeps it in the graph."
_OUTSIDE = "Do this before or after the compiled function, not inside."
_CALL = (
    "Move the call out of the compiled function; a third-party operator can be wrapped as a custom operator "
    "(torch.library.custom_op) or allowed by torch.compiler.allow_in_graph."
)


def _builtin(found: Break) -> tuple[str, str]:
    name = _between(found.explanation, "builtin operator `") or _between(found.context, "builtin ")
    if name == "print":
        return "Dynamo cannot put print into a graph", _PRINT
    if name == "open":
        return "Dynamo cannot open a file inside a graph", "Open and read files outside the compiled function."
    if name in ("int", "float", "bool"):
        return f"{name}() needs the value of a tensor, which a graph does not have", _ITEM
    return f"Dynamo cannot trace the built-in function {name or 'called here'}", _OUTSIDE


def _skipped_call(found: Break) -> tuple[str, str]:
    module, name = _after(found.context, "module: "), _after(found.context, "qualname: ")
    parts = (part.lstrip("_") for part in (module, name) if part and not part.startswith("<"))
    full = ".".join(parts) or _between(found.explanation, "`").rstrip(".")
    if name == "warn" or name.startswith("warn_"):
        return f"Dynamo cannot put {full} into a graph", "Warn before or after the compiled function, not inside."
    if module == "time":
        return f"{full} gives another value at each call, which a graph cannot hold", _OUTSIDE
    if name.startswith("Random."):
        full = f"random.{name.rpartition('.')[2]}"
        return f"{full} gives another value at each call, which a graph cannot hold", (
            "Draw the number with torch.rand or torch.randint, or before the call, and pass it as an argument."
        )
    if module.startswith("torch.optim."):
        return _not_inlined(found)
    if _SYNC.search(f"{full} {found.explanation}"):
        return f"{full} is a barrier, which a graph cannot hold", "Call the barrier after the compiled function."
    if found.in_library:  # the program's line calls something else, whose author chose this
        file, _, func = found.frames[0][:3]
        what = f"{full or 'a function'}, which {func}() of {os.path.basename(file)} calls"
        return f"Dynamo does not trace into {what}", _CALL if acts(file) else _OUTSIDE
    return f"Dynamo does not trace into {full or 'the function called here'}", _CALL


_SYNC = re.compile(r"\b(torch_xla\.sync|mark_step|xla_model\.\w*step|xla_sync|modes\.barriers\.\w+)\b")


def _not_inlined(found: Break) -> tuple[str, str]:
    name = _after(found.context, "qualname: ") or _between(found.explanation, "`")
    if name.startswith("Optimizer.") or "torch.optim." in found.context:
        return f"PyTorch keeps {name} out of graphs", f"Call {name.rpartition('.')[2]}() outside the compiled function."
    if _SYNC.search(name):
        return f"{name} is a barrier, which a graph cannot hold", "Call the barrier after the compiled function."
    file = _between(found.context, "filename: `")
    if file and is_library(file, None):
        of = package_path(file).partition("/")[0] or os.path.basename(file)
        return f"PyTorch does not trace {name or 'this function'} of {of}", _OUTSIDE
    return f"PyTorch has marked {name or 'this function'} as not to be traced", (
        "Call it outside the compiled function, or decorate it with torch._dynamo.dont_skip_tracing."
    )


def _operator(found: Break) -> str:
    name = found.context.split()[0] if found.context else ""
    return "::".join(name.removesuffix(".default").split(".", 1)) if name.startswith("aten.") else name


def _dynamic_shape(found: Break) -> tuple[str, str]:
    name = _operator(found)
    if name == "aten::nonzero":  # what an index by a mask calls
        return "how many elements a mask selects (aten::nonzero) depends on its values", _SHAPE
    return f"the shape of {name or 'the result'} depends on the values of its input", _SHAPE


def _disabled(found: Break) -> tuple[str, str]:
    name = _between(found.explanation, "<function ").partition(" at 0x")[0]
    return f"{name or 'The function called here'} is marked torch.compiler.disable", (
        "Remove torch.compiler.disable from it, or call it outside the compiled function."
    )


def _method(found: Break) -> tuple[str, str]:
    name, owner = _between(found.explanation, "method `"), _between(found.explanation, "of class `")
    what = f"{owner}.{name}" if owner and name else name or "the method called here"
    return f"Dynamo cannot trace {what}", _OUTSIDE


def _no_argument(found: Break) -> tuple[str, str]:
    classes = re.findall(r"UserDefinedObjectVariable\((\w+)\)", found.context)
    if "Generator" in classes:
        return "a torch.Generator cannot be put into a graph", (
            "Draw what this line draws before the call, and pass it as a tensor; or draw it without a generator of "
            "your own, with the one that torch.manual_seed() seeds."
        )
    what = f"an object of class {classes[0]}" if classes else "an object"
    return f"{what} cannot be an argument of an operation in a graph", hint(found)


#: NumPy's functions that do what a method of one of its universal functions does
_SAME_IN_NUMPY = {
    "add.reduce": "np.sum",
    "multiply.reduce": "np.prod",
    "maximum.reduce": "np.max",
    "minimum.reduce": "np.min",
    "logical_and.reduce": "np.all",
    "logical_or.reduce": "np.any",
    "add.accumulate": "np.cumsum",
    "multiply.accumulate": "np.cumprod",
}


def _numpy_function(found: Break) -> str:
    name = re.search(r"numpy function: <(?:ufunc|class|function|built-in function) '?([\w.]+)", found.context)
    return name[1].removeprefix("numpy.") if name else ""


def _numpy_method(found: Break) -> tuple[str, str]:
    name = _numpy_function(found)
    called = re.search(rf"\b{re.escape(name)}\.(\w+)\(", _code(found.user_frames(1))) if name else None
    full = f"{name}.{called[1]}" if called else name
    what = f"np.{full}" if full else "a function of NumPy's"
    instead = _SAME_IN_NUMPY.get(full)
    return (
        f"Dynamo does not trace {what}: it knows functions of NumPy's, but none of their methods",
        f"Call {instead} in place of {what}, which is traced." if instead else _OUTSIDE,
    )


_LOGGER = ("Dynamo cannot put a call of a logger into a graph", _LOG)
_DEEPCOPY = ("copy.deepcopy cannot be part of a graph", "Copy with tensor.clone(), or outside the compiled function.")

#: reason and hint by PyTorch's number of the break, or how to find them
_KNOWN: dict[str, tuple[str, str] | Callable[[Break], tuple[str, str]]] = {
    "GB0003": (
        "a generator cannot be compiled by itself",
        "Return a list, or compile the function that loops over it.",
    ),
    "GB0007": _skipped_call,
    "GB0008": _not_inlined,
    "GB0009": _not_inlined,
    "GB0025": ("torch._dynamo.graph_break() asks for it", "Remove the call of torch._dynamo.graph_break()."),
    "GB0033": lambda found: (
        f"{_operator(found).replace('aten::_local_scalar_dense', 'this line') or 'the operation'} gives a Python value "
        "that depends on a tensor's values",
        _ITEM,
    ),
    "GB0034": ("an assert needs the value of a tensor", "Check the tensor outside, or use torch._assert_async."),
    "GB0035": ("the condition needs the value of a tensor", _BRANCH),
    "GB0036": _dynamic_shape,
    "GB0037": _dynamic_shape,
    "GB0038": ("a slice by a tensor has a size that only its values tell", _SHAPE),
    "GB0055": _no_argument,
    "GB0059": _builtin,
    "GB0097": (
        "a deque of limited length that exists already is changed",
        "Change the deque outside the compiled function.",
    ),
    "GB0098": _disabled,
    "GB0099": _disabled,
    "GB0109": ("tolist() needs the values of the tensor", _LIST),
    "GB0123": ("backward() starts a graph of its own", "Call backward() outside the compiled function."),
    "GB0124": ("item() needs the value of the tensor, which a graph does not have", _ITEM),
    "GB0125": ("requires_grad_() cannot be part of a graph", "Call requires_grad_() before the compiled function."),
    "GB0142": lambda found: (
        f"Dynamo cannot enter the context manager {_between(found.explanation, 'enter a `')}".rstrip(),
        "Enter it around the call of the compiled function, not inside.",
    ),
    "GB0156": _method,
    "GB0170": ("the branch depends on the value of a tensor", _BRANCH),
    "GB0179": _DEEPCOPY,
    "GB0213": lambda found: (_builtin(found)[0], "Use the torch function for it instead of the built-in."),
    "GB0290": _numpy_method,
    "GB0291": _LOGGER,
    "GB0294": lambda found: (
        f"np.{_numpy_function(found) or 'the function called here'} is none of NumPy's functions that PyTorch traces",
        _OUTSIDE,
    ),
    "GB4198": _DEEPCOPY,
    "GB7000": ("the graph breaks inside a loop", "Move what breaks the graph out of the loop."),
}


#: of PyTorch's: its wrapper of ``step`` bears the optimizer's name
_SCHEDULER = "torch/optim/lr_scheduler.py"
#: optimizers and schedulers, of which PyTorch keeps parts out of graphs
_OPTIM = "/torch/optim/"


#: PyTorch's files that wrap a model for several ranks, in words
_WRAPPERS = {
    "/torch/nn/parallel/distributed.py": (
        "DistributedDataParallel runs what it has to do around the model (its buckets of gradients) outside of graphs"
    ),
    "/torch/distributed/_composable/": "replicate() runs its hooks (its buckets of gradients) outside of graphs",
    "/torch/distributed/fsdp/": "FSDP runs its hooks, which gather parameters and free them, outside of graphs",
}
#: the code between a wrapper and what it calls, and by which it enters its contexts
_PLUMBING = ("/torch/_dynamo/", "/torch/nn/modules/module.py", "/contextlib.py")


def _wrapped(found: Break) -> str:
    """What PyTorch's wrapper of a model does where the graph breaks, as a clause; empty where that is no wrapper's."""
    for frame in found.frames:
        file = frame.file.replace("\\", "/")
        for place, what in _WRAPPERS.items():
            if place in file:
                return what
        if not any(place in file for place in _PLUMBING):
            break
    return ""


#: of a failure
_SUPPRESSED = (
    "leave torch._dynamo.config.suppress_errors off: with it a function whose compilation fails runs as plain Python, "
    "without an error."
)
_FAILS = f"Mend what the message says, and {_SUPPRESSED}"
_FAKE = (
    "Give the operator a fake (its register_fake decorates a function that returns an empty tensor of the result's "
    f"shape and dtype), and {_SUPPRESSED}"
)


def explain(found: Break) -> tuple[str, str]:
    """Why the graph broke and what to change: a clause without a full stop, and a sentence (empty: none is known)."""
    if wrapped := _wrapped(found):
        return wrapped, ""
    if found.title.startswith(FAILS):
        return found.title, _FAKE if "register_fake" in found.title else _FAILS
    if _in_logging(found):
        return _LOGGER
    known = _KNOWN.get(found.gb)
    if known is not None:
        reason, advice = known if isinstance(known, tuple) else known(found)
        return reason, _at_its_line(found, advice)
    first = found.explanation.partition(". ")[0] or found.title or "Dynamo could not trace this line"
    return first.strip().rstrip("."), hint(found)


def _at_its_line(found: Break, advice: str) -> str:
    """The advice; of a condition that ends a loop what serves that; without an option that keeps a size or a number in
    the graph where Python asks for that."""
    kept = {_SHAPE: (_FIXED, "what was selected here"), _ITEM: (_TENSOR, "the value that is read here")}.get(advice)
    at = [frame[:2] for frame in found.user_frames(1)]
    if advice == _BRANCH and any(ends_a_loop(*one) for one in at):
        return _GOES_ON
    asks = asking(*at[0]) if kept and at else 0
    if kept is None or not asks:
        return advice
    return f"{kept[0]}: line {asks} asks for {kept[1]} in Python, which no option keeps in a graph."


def hint(found: Break) -> str:
    """The first useful one of PyTorch's hints, as a sentence; empty where none is."""
    for one in found.hints:
        text = one.strip().rstrip(".")
        if text and not text.startswith(_USELESS):
            return f"{text}."
    return ""


def by_design(found: Break) -> bool:
    """PyTorch or a library cuts the graph there on purpose: nobody could or would mend it.

    ``backward()`` in a compiled step (it gets a graph of its own), what DistributedDataParallel and FSDP do around a
    model, the parts that optimizers keep out of graphs, what a
    scheduler wraps around an optimizer's step (which is compiled by itself), a
    break or a ``disable`` that a library's author wrote, an exception on its way out; and a call of a disabled function
    of the program whose result is not used, logging say: that cuts no computation out of the graph.
    """
    if found.gb in ("GB0123", "GB0088") or _wrapped(found):
        return True
    if found.gb in ("GB0098", "GB0099") and _is_statement(found.user_frames(1)):
        return True
    if found.gb in ("GB0008", "GB0009") and (
        _after(found.context, "qualname: ").startswith("Optimizer.")
        or _OPTIM in _between(found.context, "filename: `").replace("\\", "/")
    ):
        return True
    if found.gb == "GB0007" and _SCHEDULER in found.explanation.replace("\\", "/"):
        return True
    return found.gb in ("GB0025", "GB0098", "GB0099") and found.in_library


def _code(frames: tuple[RawFrame, ...]) -> str:
    return linecache.getline(frames[0].file, frames[0].line).strip() if frames else ""


def _is_statement(frames: tuple[RawFrame, ...]) -> bool:
    """The innermost line is a call and nothing else: its result is not used."""
    try:
        (statement,) = ast.parse(_code(frames)).body
    except (SyntaxError, ValueError):  # part of a longer statement, or more than one
        return False
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)


def _in_logging(found: Break) -> bool:
    return bool(found.frames) and found.frames[0].file.replace("\\", "/").endswith("/logging/__init__.py")


def _between(text: str, start: str, end: str = "`") -> str:
    rest = text.partition(start)[2]
    return re.split(rf"[{re.escape(end)}\s]" if start.endswith(" ") else re.escape(end), rest, maxsplit=1)[0].strip()


def _after(text: str, start: str) -> str:
    return text.partition(start)[2].partition(",")[0].strip()
