"""Random programs: how they are made, what running them tells, and what is left of one that goes wrong.

A program is a list of lines of Python (:mod:`.grammar`), made from a seed. It is run on the CPU and on ``xla``, line by
line: what it prints, which lines raise what, and all that can be told of the living tensors have to be the same.
"""

from __future__ import annotations

import inspect
import random
import re
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import torch
import torch.utils.checkpoint
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import xlaprof.runtime as xr

from .grammar import DTYPES, EXACT, HIGHER_ORDER, SHAPES, SMOOTH, Fields, Tensor

MOST, LARGEST = 8, 60  # living tensors, elements of one
REFUSED = 0.2  # of the lines that the CPU refuses, so many are kept
ATTEMPTS = 200  # programs to try for a smaller one that goes wrong


class Line(NamedTuple):
    """A statement: its text, and which tensors it may not write and read in one place."""

    text: str
    writes: str = ""
    reads: str = ""


# -- what programs call -------------------------------------------------------------------------------


def own(x: Tensor) -> Tensor:
    return x.clone(memory_format=torch.contiguous_format)


def resize(t: Tensor, *size: int) -> None:
    before = t.untyped_storage().nbytes()
    if t.resize_(*size).untyped_storage().nbytes() > before:
        t.fill_(7)  # what PyTorch has there is anything


def set_storage(t: Tensor, o: Tensor, offset: int, apart: bool) -> None:
    if o.dtype is not t.dtype:  # floats out of integers' bits are denormal, and XLA flushes those
        o = t
    before = o.untyped_storage().nbytes()
    t.set_(o.untyped_storage(), offset, (2,), (1 + apart,))
    if t.untyped_storage().nbytes() > before:
        t.set_(t.untyped_storage()).fill_(3)


def backward(tensors: list[Tensor], leaf: Tensor) -> None:
    sum(((t * t.clone().cos()).sum() for t in tensors if t.numel()), start=leaf.sum()).backward()


HELPERS: tuple[Callable[..., Any], ...] = (own, resize, set_storage, backward)


# -- making -------------------------------------------------------------------------------------------


def program(seed: int, statements: int) -> list[Line]:
    """The program of ``seed``: every third is differentiated, one in 24 ends in control flow that Dynamo compiles."""
    draw = random.Random(seed)
    smooth = seed % 3 == 2
    lines = [Line(text) for text in (_leaves() if smooth else _bases(draw))]
    run = Run("cpu")
    for line in lines:
        run.do(line)
    families = SMOOTH if smooth else EXACT
    count = draw.randint(2, statements)
    for number in range(count):
        if seed % 24 == 0 and number == count - 1:
            families = {"higher order": HIGHER_ORDER.strip().splitlines()}
        for _ in range(20):
            line = _line(draw, families, run.tensors)
            undo = dict(run.names)
            told = run.do(line)
            if not isinstance(told, Refused) or draw.random() < REFUSED:
                break
            run.names = undo
        lines.append(line)
        if too_large := [name for name, t in run.tensors.items() if t.numel() > LARGEST or t.dim() > 5]:
            lines.append(Line("del " + ", ".join(too_large)))
            run.do(lines[-1])
        if not run.tensors:
            break
    if smooth:
        lines.append(Line(f"backward([{', '.join(run.tensors)}], l0)"))
    return lines


def _bases(draw: random.Random) -> list[str]:
    return [
        f"t{i} = torch.arange({torch.Size(shape).numel()}).remainder(11).reshape({shape})"
        f".to({draw.choice(DTYPES)}).clone().to(device)"
        for i, shape in enumerate(draw.choices(SHAPES, k=draw.randint(1, 3)))
    ]


def _leaves() -> list[str]:
    return [
        "l0 = (torch.arange(12, dtype=torch.float64) / 4 - 1).reshape(3, 4).to(device).requires_grad_()",
        "l1 = (torch.arange(4, dtype=torch.float64) / 4 - 1).reshape(1, 4).to(device).requires_grad_()",
        "t0 = l0 * 1.5",
        "t1 = l1 * 1.5",
        "t2 = torch.ones(3, 4, dtype=torch.float64).to(device)",
    ]


def _line(draw: random.Random, families: dict[str, list[str]], tensors: dict[str, Tensor]) -> Line:
    family = draw.choice(list(families))
    text = draw.choice(families[family])
    t = draw.choice(list(tensors))
    alike = [name for name in tensors if tensors[name].shape == tensors[t].shape]
    o = draw.choice(alike if draw.random() < 0.5 else list(tensors))
    free = [f"t{i}" for i in range(MOST) if f"t{i}" not in tensors] or list(tensors)
    line = text.format_map(Fields(draw, {"t": t, "o": o, "r": draw.choice(free)}, tensors[t]))
    if family.startswith(("write", "control")):
        return Line(line, t, o if "{o}" in text else "")
    return Line(line)


# -- running ------------------------------------------------------------------------------------------


class Refused(str):
    """The type of the error that a line ended in."""


class Run:
    """The names of a program on one device."""

    def __init__(self, device: str) -> None:
        self._told: list[Any] = []
        self._compares = False  # a gradient will ask which elements are the largest
        self.names: dict[str, Any] = {function.__name__: function for function in HELPERS}
        self.names |= {
            "torch": torch,
            "device": device,
            "barrier": xr.sync if device == "xla" else lambda: None,
            "cond": torch.cond,
            "while_loop": while_loop,
            "scan": scan,
            "print": lambda *values: self._told.extend(map(_comparable, values)),
        }

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The living ones that statements are about."""
        return {name: value for name, value in sorted(self.names.items()) if re.fullmatch(r"t\d", name)}

    def do(self, line: Line) -> Any:
        """Execute ``line``: what it printed, or the error's type."""
        self._told = []
        self._compares |= re.search(r"\.(amax|amin|max|min|aminmax)\(", line.text) is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                exec(line.text, self.names)
            except Exception as error:
                return Refused(type(error).__name__)
        return self._told

    def is_left_out(self, line: Line) -> bool:
        """Is ``line`` one of which PyTorch promises nothing?"""
        return self._is_by_chance(line) or self._is_made_anew(line) or self._is_untracked(line)

    def _is_untracked(self, line: Line) -> bool:
        """Would ``line`` change, unseen by autograd, what an extreme is compared with?

        No element is the largest then. The gradient is divided by their number: 0 / 0, where the CPU has a NaN. XLA
        takes ``x * mask`` for a choice between ``x`` and 0, so it may have 0.
        """
        return self._compares and "l0" in self.names and ".data." in line.text

    def _is_by_chance(self, line: Line) -> bool:
        """Would ``line`` depend on the order in which memory is visited?"""
        named = [self.names.get(name) for name in (line.writes, line.reads)]
        t, o = (value if isinstance(value, Tensor) else None for value in named)
        if t is not None and "index_put_(" in line.text and _is_expanded(t):
            return True  # which PyTorch does, element after element, and warns of
        if t is not None and "l0" in self.names and o is None:
            o = t
        return t is not None and by_chance(t, o)

    def _is_made_anew(self, line: Line) -> bool:
        """Would ``line`` change the dimensions of what autograd makes views of anew?

        For devices whose tensors it takes to have no strides (``c10::Device::supports_as_strided``: all of ``xla``),
        PyTorch calls the view operator again, on what the base is by then.
        """
        changed = re.fullmatch(r"(t\d)\.(squeeze|unsqueeze|transpose|swapaxes|swapdims|t)_\(.*\)", line.text)
        base = self.names.get(changed[1]) if changed and "l0" in self.names else None
        if changed is None or base is None or not any(t._base is base for t in self.tensors.values()):
            return False
        return "squeeze" in changed[2] or base.retains_grad  # what autograd refers to cannot be replaced

    def state(self) -> dict[str, Any]:
        """All that can be told of the living tensors without their values."""
        return {name: _with_history(t) if "l0" in self.names else _in_memory(t) for name, t in self.tensors.items()}

    def values(self) -> dict[str, Tensor]:
        """Copies of the living tensors and of the leaves' gradients on the host, by one read."""
        shown = {name: t.detach() for name, t in self.tensors.items()}
        for leaf in ("l0", "l1"):
            if leaf in self.names and self.names[leaf].grad is not None:
                shown[f"{leaf}.grad"] = self.names[leaf].grad
        if not shown:
            return {}
        flat = torch.cat([t.reshape(-1).double() for t in shown.values()]).cpu()
        pieces = flat.split([t.numel() for t in shown.values()])
        return {name: piece.view(t.shape) for (name, t), piece in zip(shown.items(), pieces, strict=True)}


def _in_memory(t: Tensor) -> tuple[Any, ...]:
    return tuple(t.shape), t.stride(), t.storage_offset(), t.dtype, t.is_contiguous(), t._version, t._is_view()


def _with_history(t: Tensor) -> Any:
    try:
        return tuple(t.shape), t.stride(), t.storage_offset(), t.requires_grad, t.is_leaf, t._version
    except RuntimeError as error:  # a view that may not be used any more
        return type(error).__name__


def _comparable(value: Any) -> Any:
    if isinstance(value, list):
        return [_comparable(one) for one in value]
    return "nan" if value != value else value


def by_chance(t: Tensor, other: Tensor | None) -> bool:
    """Would writing ``t`` after reading ``other`` depend on the order in which memory is visited?

    Not where PyTorch refuses it: of what is expanded, and of two dense ranges that overlap in part.
    """
    places = _places(t)
    if len(set(places)) < len(places) and not _is_expanded(t):
        return True
    if other is None or (t.data_ptr() != other.data_ptr() != 0 and t.untyped_storage() != other.untyped_storage()):
        return False
    if (t.shape, t.stride(), t.storage_offset()) == (other.shape, other.stride(), other.storage_offset()):
        return False
    return t.element_size() != other.element_size() or bool(set(places) & set(_places(other)))


def _is_expanded(t: Tensor) -> bool:
    return any(s == 0 and n > 1 for n, s in zip(t.shape, t.stride(), strict=True))


def _places(t: Tensor) -> list[int]:
    """Numbers of the elements of its storage that ``t`` shows, once for each time."""
    if 0 in t.shape:
        return []
    reach = 1 + t.storage_offset() + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return torch.arange(reach).as_strided(t.shape, t.stride(), t.storage_offset()).flatten().tolist()


# -- comparing ----------------------------------------------------------------------------------------


def disagreement(lines: list[Line]) -> str:
    """What is different on ``xla``; empty where all is as on the CPU."""
    here, there = Run("cpu"), Run("xla")
    for line in lines:
        if here.is_left_out(line):
            continue
        expected = here.do(line)
        if isinstance(expected, Refused) and expected == "UncapturedHigherOrderOpError":
            continue  # what Dynamo cannot capture on the CPU it may where nothing is in memory
        told = there.do(line)
        if told != expected or type(told) is not type(expected):
            return f"{line.text}: {told!r}, not {expected!r}"
    if there.state() != here.state():
        changed = [(name, there.state().get(name), state) for name, state in here.state().items()]
        return "; ".join(f"{name} is {mine}, not {state}" for name, mine, state in changed if mine != state)
    try:
        mine, theirs = there.values(), here.values()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    tolerance = {} if "l0" in here.names else {"rtol": 0, "atol": 0}
    if mine.keys() != theirs.keys():
        return f"{sorted(mine)}, not {sorted(theirs)}"
    for name, value in mine.items():
        try:
            torch.testing.assert_close(value, theirs[name], equal_nan=True, **tolerance)
        except AssertionError:
            return f"{name} is {value.tolist()}, not {theirs[name].tolist()}"
    return ""


def minimal(lines: list[Line]) -> list[Line]:
    """A part of ``lines`` that goes wrong as well, from which no line can be left out (within ``ATTEMPTS``)."""
    attempts, size = 0, len(lines) // 2
    while size and attempts < ATTEMPTS:
        at = 0
        while at < len(lines) and attempts < ATTEMPTS:
            less = lines[:at] + lines[at + size :]
            attempts += 1
            if less and disagreement(less):
                lines = less
            else:
                at += size
        size = size // 2 if size > 1 or at else 0
    return lines


def as_script(lines: list[Line]) -> str:
    """A program that can be run as it stands."""
    text = "\n".join(line.text for line in lines)
    head = [
        "import torch",
        "import xlaprof.runtime as xr",
        "",
        'device, barrier = "xla", xr.sync  # "cpu", lambda: None',
    ]
    if "scan(" in text:
        head.append("from torch._higher_order_ops.scan import scan")
    if "while_loop(" in text:
        head.append("from torch._higher_order_ops.while_loop import while_loop")
    if "cond(" in text:
        head.append("from torch import cond")
    used = [inspect.getsource(helper) for helper in HELPERS if f"{helper.__name__}(" in text]
    left_out, refused = _on_the_cpu(lines)
    body = [
        f"# {line.text}  # nothing is promised of it"
        if i in left_out
        else f"try:\n    {line.text}\nexcept Exception as error:\n    print(type(error).__name__, error)"
        if i in refused
        else line.text
        for i, line in enumerate(lines)
    ]
    shown = ", ".join(dict.fromkeys(re.findall(r"\bt\d\b", text)))
    return (
        "\n".join([*head, "", *used, *body, f"print({shown})"])
        .replace(": Tensor", ": torch.Tensor")
        .replace("-> Tensor", "-> torch.Tensor")
        .replace("[Tensor]", "[torch.Tensor]")
    )


def _on_the_cpu(lines: list[Line]) -> tuple[set[int], set[int]]:
    """Numbers of the lines that are left out, and of those that the CPU refuses."""
    run = Run("cpu")
    left_out = {i for i, line in enumerate(lines) if run.is_left_out(line) or isinstance(run.do(line), Refused)}
    run = Run("cpu")
    refused = {i for i, line in enumerate(lines) if not run.is_left_out(line) and isinstance(run.do(line), Refused)}
    return left_out - refused, refused


def check(seed: int, statements: int) -> None:
    """Raise if the program of ``seed`` differs on ``xla``, with the smallest one that does."""
    lines = program(seed, statements)
    if wrong := disagreement(lines):
        less = minimal(lines)
        raise AssertionError(f"seed {seed}: {disagreement(less) or wrong}\n\n{as_script(less)}")


class Programs:
    """What came of many programs."""

    def __init__(self) -> None:
        self.programs = 0
        self.failures: dict[str, str] = {}
        self.slowest = (0.0, 0)

    def add(self, other: Programs) -> None:
        self.programs += other.programs
        self.failures |= other.failures
        self.slowest = max(self.slowest, other.slowest)

    def figures(self) -> str:
        return (
            f"{self.programs:,} programs, {len(self.failures)} went wrong; slowest {self.slowest[0]:.1f} s of CPU "
            f"(seed {self.slowest[1]})"
        )


def sweep(seeds: Iterable[int], statements: int) -> Programs:
    """Check the program of each seed, then forget what was compiled."""
    done = Programs()
    for seed in seeds:
        began = time.process_time()
        try:
            check(seed, statements)
        except AssertionError as error:
            done.failures[f"seed {seed}"] = str(error)
        except Exception:
            done.failures[f"seed {seed}"] = f"seed {seed}: {traceback.format_exc()}"
        done.programs += 1
        done.slowest = max(done.slowest, (time.process_time() - began, seed))
    forget()
    return done


def forget() -> None:
    """Thousands of live programs exhaust a process's memory maps."""
    xr.clear_compile_cache()
    jax.clear_caches()
    torch._dynamo.reset()
