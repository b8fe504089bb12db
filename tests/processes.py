"""Programs in processes of their own, forked from one that has imported torch and jax, and nothing of xlaprof's.

To import the two takes a process two seconds of the processor, again and again, and four more what they import at
their first use. Here a server imports all that once. What a program imports of xlaprof, XLA's client, threads and the
end of the interpreter are its process's own, as are its environment, folder and output. Processes that must differ in
what torch and jax read when they are imported, in the order in which they are, or in the hashes of strings, are started
the long way.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Forked:
    """A process that runs a program as ``python`` does: ``-c program``, ``-m module`` or a script, and arguments."""

    def __init__(self, *args: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
        self.args, self._folder = args, tempfile.TemporaryDirectory()
        self._outputs = [os.path.join(self._folder.name, name) for name in ("stdout", "stderr")]
        request = {"args": args, "cwd": str(cwd or os.getcwd()), "env": dict(env or os.environ), "to": self._outputs}
        self.pid = _server().asked(request)

    def wait(self, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """The end of the process, what it printed, and its exit code, or minus the signal that killed it."""
        killer = threading.Timer(timeout, os.kill, (self.pid, signal.SIGKILL))
        killer.start()
        code = _server().asked({"wait": self.pid})
        killer.cancel()
        killer.join()
        stdout, stderr = (Path(path).read_text() for path in self._outputs)
        self._folder.cleanup()
        return subprocess.CompletedProcess(self.args, code, stdout, stderr)


def run(*args: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The end of a process (:class:`Forked`)."""
    return Forked(*args, cwd=cwd, env=env).wait()


class _Server:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        atexit.register(self._end)

    def asked(self, request: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(request) + "\n")
            return int(self._process.stdout.readline())

    def _end(self) -> None:
        self._process.communicate()


_server = functools.cache(_Server)


def _serve() -> dict[str, Any] | None:
    """Fork for each request; the request, in the process that was forked for it."""
    import jax.experimental.multihost_utils
    import jax.scipy.special  # noqa: F401
    import torch._dynamo  # noqa: F401

    assert threading.active_count() == 1, "a fork takes one thread along"
    gc.freeze()  # no collection in a process looks through what was imported here, the last one neither
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        if "wait" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # jax warns of forks: it is not at work yet
                answer = os.fork()
            if not answer:
                return request
        print(answer, flush=True)
    return None


def _become(request: dict[str, Any]) -> None:
    """Run a program in this process, as the interpreter that begins with it does."""
    import runpy
    import types

    for number, path in enumerate(("/dev/null", *request["to"])):
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(file, number)
        os.close(file)
    sys.stdin = os.fdopen(0)  # what is in the buffer are requests
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    how, *arguments = request["args"]
    if how == "-m":
        sys.path[0], sys.argv = request["cwd"], arguments
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if how == "-c":
        program, file, sys.path[0], sys.argv = arguments[0], "<string>", "", ["-c", *arguments[1:]]
    else:
        main.__file__ = file = os.path.abspath(how)
        program, sys.path[0], sys.argv = Path(file).read_text("utf-8"), os.path.dirname(file), request["args"]
    exec(compile(program, file, "exec"), main.__dict__)


if __name__ == "__main__" and (asked := _serve()) is not None:
    _become(asked)
