"""A program as ``python`` would run it, in this process: a script or a module, as ``__main__``."""

from __future__ import annotations

import builtins
import importlib.util
import os
import sys
import types
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import NamedTuple

from xlaprof.covered import uncover
from xlaprof.errors import UserError, warn
from xlaprof.recording.recorder import ending


class Program(NamedTuple):
    """The program of a command line, as ``python`` would run it."""

    argv: list[str]
    path0: str  # sys.path[0]
    main: types.ModuleType
    code: types.CodeType


class Outcome:
    """How the program ended, for who asks later."""

    error = ""


def script(script: str, args: list[str]) -> Program:
    path = Path(script)
    if path.is_dir():
        raise UserError(f"{script} is a directory: name a script in it, or a package after -m")
    try:
        source = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"no such script: {script}") from None
    except OSError as e:
        raise UserError(f"cannot read {script}: {e.strerror}") from None
    file = os.path.join(os.getcwd(), script)  # not normalised: Python does not either
    try:
        code = compile(source, file, "exec", dont_inherit=True)
    except SyntaxError as e:
        where = f", line {e.lineno}" if e.lineno else ""
        raise UserError(f"cannot run {script}{where}: {e.msg}") from None
    except ValueError as e:  # null bytes, up to Python 3.11
        raise UserError(f"cannot run {script}: {e}") from None
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=file, __cached__=None, __builtins__=builtins, __loader__=SourceFileLoader("__main__", file)
    )
    return Program([script, *args], os.path.dirname(os.path.realpath(script)), main, code)


def module(module_and_args: list[str]) -> Program:
    if not module_and_args:
        raise UserError("-m needs the name of a module (see xlaprof run --help)")
    name, *args = module_and_args
    path0 = os.getcwd()
    _set_path0(path0)  # packages on the way to the module are imported from there
    spec = _find(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = _find(f"{name}.__main__")
        if spec is None:
            raise UserError(f"{name} is a package without a __main__ module: name a module in it")
    if spec is None:
        raise UserError(f"no module named '{name}'")
    try:
        code = spec.loader.get_code(spec.name)  # type: ignore[union-attr]  # loaders of code have it
    except (AttributeError, ImportError):
        code = None
    except SyntaxError as e:
        raise UserError(f"cannot run {spec.origin}, line {e.lineno}: {e.msg}") from None
    if code is None:
        raise UserError(f"module '{name}' has no Python code to run")
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=spec.origin,
        __cached__=spec.cached,
        __builtins__=builtins,
        __loader__=spec.loader,
        __spec__=spec,
        __package__=spec.parent,
    )
    return Program([spec.origin or name, *args], path0, main, code)


def _find(name: str) -> ModuleSpec | None:
    """The spec of ``name``; its parent packages are imported. None where a part of the name does not exist."""
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as e:
        if e.name and (name == e.name or name.startswith(f"{e.name}.")):
            return None
        raise UserError(f"cannot import the packages of '{name}': {e}") from e
    except Exception as e:  # whatever the user's packages raise while they are imported
        raise UserError(f"cannot import the packages of '{name}': {type(e).__name__}: {e}") from e


def _set_path0(path0: str) -> None:
    if not sys.flags.safe_path:  # with python -P or PYTHONSAFEPATH, Python adds nothing of its own
        uncover(path0)
        sys.path[0] = path0


def execute(program: Program, outcome: Outcome) -> int:
    """Run the program as ``__main__`` and return its exit code. Python's own hook prints the exceptions that it
    raises."""
    _set_path0(program.path0)
    sys.modules["__main__"] = program.main
    try:
        exec(program.code, program.main.__dict__)
    except SystemExit as e:
        if e.code is None or isinstance(e.code, int):
            code = e.code or 0
        else:
            print(e.code, file=sys.stderr)
            code = 1
        outcome.error = ending(e)
        return code
    except BaseException as e:
        outcome.error = ending(e)
        e.__traceback__ = e.__traceback__.tb_next if e.__traceback__ else None  # without the frame of this function
        sys.last_type, sys.last_value, sys.last_traceback = type(e), e, e.__traceback__
        sys.excepthook(type(e), e, e.__traceback__)
        if _lacks_xla(e):
            warn("nothing has made 'xla' a device: add 'import torch_xla' at the top of the program")
        if isinstance(e, KeyboardInterrupt):
            sys.excepthook = lambda *_: None  # it has printed this one
            e.__xlaprof_program__ = True  # type: ignore[attr-defined]
            raise
        return 1
    return 0


def _lacks_xla(error: BaseException) -> bool:
    """Is ``error`` PyTorch's for the device ``xla``, in a program that imports neither torch_xla nor xlaprof's?"""
    if not isinstance(error, RuntimeError) or "torch_xla" in sys.modules or "xlaprof.runtime" in sys.modules:
        return False
    return "from the 'XLA' backend" in str(error) or "not linked with support for xla" in str(error)
