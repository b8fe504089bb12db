"""Whose line is it: the user's frames are found, everybody else's left out, and the source text is had."""

import asyncio
import gc
import json
import os
import subprocess
import sys
import threading
import weakref
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from xlaprof.recording import stacks
from xlaprof.recording.intern import Here
from xlaprof.recording.stacks import RawFrame, user_frames
from xlaprof.source_text.lines import source_line


def line_of(text: str, file: str = __file__) -> int:
    return next(n for n, line in enumerate(Path(file).read_text().splitlines(), 1) if text in line)


def library(tmp_path: Path, source: str) -> dict:
    """A module that is installed: its file lies in a site-packages."""
    file = tmp_path / "site-packages" / "somelib" / "core.py"
    file.parent.mkdir(parents=True)
    file.write_text(source)
    namespace = {"__name__": "somelib.core", "__file__": str(file)}
    exec(compile(source, str(file), "exec"), namespace)
    return namespace


def test_innermost_first_with_function_and_line() -> None:
    def inner() -> tuple[RawFrame, ...]:
        return user_frames()  # the line

    def outer() -> tuple[RawFrame, ...]:
        return inner()  # the call

    first, second, third = outer()[:3]
    assert first == (__file__, line_of("# the line"), f"{third.func}.<locals>.inner")
    assert second == (__file__, line_of("# the call"), f"{third.func}.<locals>.outer")
    assert third.func == "test_innermost_first_with_function_and_line"


def test_frames_of_installed_packages_are_left_out(tmp_path: Path) -> None:
    lib = library(
        tmp_path, "def apply(function):\n    return helper(function)\ndef helper(function):\n    return function()\n"
    )
    frames = lib["apply"](lambda: user_frames())
    assert all("somelib" not in frame.file for frame in frames)
    assert [frame.line for frame in frames[:2]] == [line_of("frames = lib[")] * 2


def test_frames_of_the_standard_library_are_left_out() -> None:
    frames = json.loads('{"a": 1}', object_hook=lambda _: user_frames())
    assert {frame.file for frame in frames[:2]} == {__file__}
    assert not any(frame.file.startswith(os.path.dirname(os.__file__) + os.sep) for frame in frames)


def test_limit_and_skip() -> None:
    def deep(n: int, **options: int) -> tuple[RawFrame, ...]:
        return user_frames(**options) if n == 0 else deep(n - 1, **options)

    assert len(deep(20, limit=3)) == 3
    assert deep(2, skip=3)[0].func == "test_limit_and_skip"
    assert user_frames(skip=10_000) == ()


def test_a_stack_seen_before_is_known_again_and_no_other_is_taken_for_it() -> None:
    def helper(limit: int = 8) -> tuple[RawFrame, ...]:
        return user_frames(limit)

    def by_way_of(function: Callable[[], tuple[RawFrame, ...]]) -> tuple[RawFrame, ...]:
        return function()

    ways = [[helper(), by_way_of(helper), helper(1)] for _ in range(3)]
    straight, around, short = ways[0]
    assert straight[0] == around[0] == short[0], "the helper's line"
    assert [frame.func.rpartition(".")[2] for frame in around[:2]] == ["helper", "by_way_of"]
    assert straight[1].func == around[2].func != "by_way_of"
    assert len(short) == 1
    for later in ways[1:]:
        assert all(again is frames for again, frames in zip(later, ways[0], strict=True))


def test_a_place_called_from_many_lines_is_reported_with_each() -> None:
    def helper() -> tuple[RawFrame, ...]:
        return user_frames()

    for _ in range(3):
        lines = [  # from here
            helper()[1].line,
            helper()[1].line,
            helper()[1].line,
            helper()[1].line,
            helper()[1].line,
            helper()[1].line,
        ]
        assert [line - line_of("# from here") for line in lines] == [1, 2, 3, 4, 5, 6]


def test_a_library_running_itself_shows_its_outermost_frames(tmp_path: Path) -> None:
    lib = library(
        tmp_path,
        "from xlaprof.recording import stacks\ndef main():\n    seen.append(stacks.user_frames(limit=2))\n",
    )
    lib["seen"] = []
    thread = threading.Thread(target=lib["main"])
    thread.start()
    thread.join()
    (frames,) = lib["seen"]
    assert len(frames) == 2
    assert frames[-1].func == "Thread._bootstrap"


def test_the_command_that_launches_a_program_is_nobodys_line_and_a_script_beside_it_is() -> None:
    import sysconfig

    folder = Path(sysconfig.get_path("scripts"))
    code = "def main():\n    return user_frames()\n"
    found = {}
    for name in ("made-up-launcher", "made_up_script.py"):
        namespace = {"__name__": "__main__", "user_frames": user_frames}
        exec(compile(code, str(folder / name), "exec"), namespace)
        found[name] = namespace["main"]()[0].file
    assert found == {"made-up-launcher": __file__, "made_up_script.py": str(folder / "made_up_script.py")}


def test_the_first_line_of_a_worker_process_is_nobodys() -> None:
    for line, users in (
        ("from multiprocessing.spawn import spawn_main; frames = user_frames()", False),
        ("frames = user_frames()", True),  # as of python -c
    ):
        namespace = {"__name__": "__main__", "user_frames": user_frames}
        exec(compile(line, "<string>", "exec"), namespace)
        assert (namespace["frames"][0].file == "<string>") is users


@pytest.mark.parametrize("name", ["<string>", "<made for {}>"])
@pytest.mark.parametrize("file", ["/v/site-packages/made_up/options.py", "/home/me/options.py", ""])
def test_code_that_a_library_makes_is_nobodys(name: str, file: str) -> None:
    """As dataclasses do, in the namespace of the module that uses them; or in one that is no module's."""
    name = name.format(file)
    namespace: dict[str, Any] = {"user_frames": user_frames}
    namespace |= {"__name__": "options", "__file__": file} if file else {}
    exec(compile("frames = user_frames()", name, "exec"), namespace)
    assert (namespace["frames"][0].file == name) is file.startswith("/home")


def test_a_program_that_has_ended_has_no_line(tmp_path: Path) -> None:
    """Exit handlers and finalizers of a library, and what ``xlaprof run`` itself does for a program's last words."""
    lib = tmp_path / "site-packages" / "closing.py"
    lib.parent.mkdir()
    lib.write_text(
        "import atexit\nfrom xlaprof.recording.stacks import is_users, user_frames\n"
        "def look(who):\n    frames = user_frames()\n    print(who, *frames[0], is_users(frames), sep='|')\n"
        "class LastWords:\n    def __str__(self):\n        look('words')\n        return 'bye'\n"
        "def register():\n    atexit.register(look, 'handler')\n"
    )
    program = tmp_path / "program.py"
    program.write_text(
        "import closing\nclosing.register()\nclosing.look('running')\nraise SystemExit(closing.LastWords())\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "xlaprof", "run", "--no-report", str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(lib.parent), *sys.path])},
    )
    running, words, handler = done.stdout.splitlines()
    assert running == f"running|{program}|3|<module>|True"
    assert (words, handler) == ("words|at exit|0||False", "handler|at exit|0||False")


def test_a_library_that_acts_is_named_below_the_users_line_and_its_launcher_is_not(tmp_path: Path) -> None:
    """A trainer runs the program's callback in a loop of its own, and the callback calls the library again."""
    lib = library(
        tmp_path,
        "def launch(program):\n"
        "    program()\n"
        "def train(callback):\n"
        "    for step in range(2):\n"
        "        callback(step)\n"
        "def read():\n"
        "    return value()\n"
        "def value():\n"
        "    return look()\n"
        "def items():\n"
        "    while True:\n"
        "        yield look()\n",
    )
    lib["look"] = user_frames
    seen = []

    def callback(step: int) -> None:
        seen.append(lib["read"]())  # the read

    def program() -> None:
        lib["train"](callback)  # the training

    thread = threading.Thread(target=lib["launch"], args=(program,))
    thread.start()
    thread.join()
    first, second = seen
    assert first == second
    assert [frame.line for frame in first[:2]] == [line_of("# the read"), line_of("# the training")]
    below = [(called.depth, called.frame.line, called.frame.func) for called in stacks.library(first)]
    assert below == [(0, 9, "value"), (0, 7, "read"), (1, 5, "train")]
    assert [frame.func for frame in stacks.whole(first)[:2]] == ["value", "read"]
    assert stacks.split(stacks.whole(first)) == first
    drawn = next(lib["items"]())
    assert stacks.library(drawn)[0].drawn, "a generator is repeated by the loop that draws from it"


def test_stacks_that_differ_in_the_librarys_line_are_different_places(tmp_path: Path) -> None:
    lib = library(tmp_path, "def run(which):\n    if which:\n        return look()\n    else:\n        return look()\n")
    lib["look"] = user_frames
    one, other, again = (lib["run"](which) for which in (True, False, True))
    assert one == again
    assert one != other, "two lines of the library"
    assert tuple(one) == tuple(other), "which the program reaches through one of its own"
    assert len({one, other, again, tuple(one)}) == 3
    assert one[1:] == other[1:]


def test_pytorch_and_tools_around_it_do_not_act(tmp_path: Path) -> None:
    for name in ("torch", "numpy", "tqdm", "pytest"):
        file = tmp_path / "site-packages" / name / "core.py"
        namespace = {"__name__": f"{name}.core", "look": user_frames}
        exec(compile("def call():\n    return look()\n", str(file), "exec"), namespace)
        assert stacks.library(namespace["call"]()) == (), name


def test_another_thread_is_seen_where_it_is() -> None:
    ready, go = threading.Event(), threading.Event()

    def waits() -> None:
        ready.set()
        go.wait()  # it is here

    thread = threading.Thread(target=waits)
    thread.start()
    ready.wait()
    try:
        # between set() and wait() the thread may still be on the line before
        frames = stacks.frames_of_thread(thread.ident or 0)
        assert frames[0].func.endswith("waits")
        assert line_of("# it is here") - frames[0].line in (0, 1)
    finally:
        go.set()
        thread.join()
    assert stacks.frames_of_thread(thread.ident or 0) == ()


COLLECTED_MEANWHILE = """
import gc, sys, threading
from xlaprof.recording.stacks import looking, running

main, over, moved = threading.get_ident(), threading.Event(), threading.Event()
waits = []  # one entry: the next collection lets the program run on, as a finalizer does that waits for something

def let_it_run_on(phase, info):
    if threading.get_ident() != main and phase == "start" and waits:
        waits.clear()
        for _ in range(2):
            moved.clear()
            moved.wait(10)

def look():
    for _ in range(100):
        with looking:
            waits.append(1)
            stack = running(main)
            frame = stack[0]
            while frame is not None:
                assert frame.f_code.co_qualname and frame.f_lineno is not None, frame
                frame = frame.f_back
            del stack, frame
    over.set()

def deep(n, kept):
    a, b = [n], {n: kept}
    return deep(n - 1, [a, b]) if n else None

def narrow(n):
    return narrow(n - 1) if n else None

gc.callbacks.append(let_it_run_on)
gc.freeze()
gc.set_threshold(1, 1_000, 1_000)  # each new object begins a collection
thread = threading.Thread(target=look, daemon=True)
thread.start()
while not over.is_set() and thread.is_alive():
    deep(30, [])
    narrow(50)
    moved.set()
print("looked" if over.is_set() else "failed", gc.isenabled())
"""


def test_a_thread_that_runs_on_while_it_is_looked_at_is_not_read_from_the_memory_of_others() -> None:
    # the frame whose object was being made was left in a collection: a crash, or an object that is no frame
    done = subprocess.run([sys.executable, "-c", COLLECTED_MEANWHILE], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "looked True\n"), done.stderr


class Batch:
    """What a function's variables hold."""


@pytest.mark.parametrize("own", [False, True])
def test_a_look_keeps_nothing_alive(own: bool) -> None:
    looked = threading.Event()
    ready = threading.Event()
    held: list[weakref.ref[Batch]] = []

    def step() -> None:
        batch = Batch()
        held.append(weakref.ref(batch))
        if own:
            stacks.frames_of_thread(threading.get_ident())
        ready.set()
        looked.wait(60)

    def run() -> None:
        step()
        assert held[0]() is None, "freed at the function's end, not by a collection"
        held.append(held[0])

    before = gc.get_threshold()
    gc.set_threshold(1_000_000)
    try:
        thread = threading.Thread(target=run)
        thread.start()
        assert ready.wait(60)
        assert thread.ident is not None
        assert stacks.frames_of_thread(thread.ident)
        looked.set()
        thread.join()
    finally:
        gc.set_threshold(*before)
    assert len(held) == 2


def test_examples_and_tests_of_this_repository_are_user_code(tmp_path: Path) -> None:
    assert user_frames()[0].file == __file__
    script = Path(__file__).parent.parent / "examples" / "made_up_for_a_test.py"
    namespace = {"__name__": "__main__", "user_frames": user_frames}
    exec(compile("def f():\n    return user_frames()\n", str(script), "exec"), namespace)
    assert namespace["f"]()[0] == (str(script), 2, "f")


@pytest.mark.parametrize("name", ["<stdin>", "<ipython-input-3-abc>", "<my template>", "/tmp/ipykernel_7/123.py"])
def test_code_without_a_file_is_user_code(name: str) -> None:
    namespace = {"__name__": "__main__", "user_frames": user_frames}
    exec(compile("def f():\n    return user_frames()\n", name, "exec"), namespace)
    frame = namespace["f"]()[0]
    assert frame == (name, 2, "f")
    assert source_line(frame.file, frame.line) == ""


def test_the_constructor_that_a_namedtuple_generates_is_not_the_users() -> None:
    seen: list[tuple[RawFrame, ...]] = []

    def look(frame: object, event: str, function: object) -> None:
        if event == "c_call" and getattr(function, "__qualname__", "") == "tuple.__new__":
            seen.append(user_frames(skip=1))  # as a garbage collection in there would

    sys.setprofile(look)
    RawFrame("train.py", 1, "main")  # the caller
    sys.setprofile(None)
    assert [frames[0].line for frames in seen] == [line_of("# the caller")]


def test_python_dash_c_is_user_code_and_dataclass_methods_are_not() -> None:
    program = (
        "import dataclasses\n"
        "from xlaprof.recording.stacks import user_frames\n"
        "@dataclasses.dataclass\n"
        "class Config:\n"
        "    frames: tuple = dataclasses.field(default_factory=user_frames)\n"
        "def make():\n"
        "    return Config()\n"
        "print([(f.file, f.line, f.func) for f in make().frames])\n"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[('<string>', 7, 'make'), ('<string>', 8, '<module>')]"


def test_a_line_of_an_ipython_cell_is_known_through_linecache() -> None:
    import linecache

    name = "<ipython-input-9-cafe>"
    linecache.cache[name] = (12, None, ["x = 1\n", "  y = x.item()\n"], name)
    try:
        assert source_line(name, 2) == "y = x.item()"
    finally:
        del linecache.cache[name]


def test_relative_names_become_absolute_before_the_program_changes_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "relative_script.py").write_text("def f():\n    return user_frames()\n")
    namespace = {"__name__": "__main__", "user_frames": user_frames}
    exec(compile("def f():\n    return user_frames()\n", "relative_script.py", "exec"), namespace)
    frame = namespace["f"]()[0]
    monkeypatch.chdir("/")
    assert frame.file == str(tmp_path / "relative_script.py")
    assert source_line(frame.file, frame.line) == "return user_frames()"


def test_source_in_a_zip_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.writestr(
            "zipped_app.py", "from xlaprof.recording.stacks import user_frames\ndef f():\n    return user_frames()\n"
        )
    monkeypatch.syspath_prepend(str(tmp_path / "app.zip"))
    import zipped_app

    frame = zipped_app.f()[0]
    assert source_line(frame.file, frame.line) == "return user_frames()"


@pytest.mark.parametrize(
    ("content", "line", "shown"),
    [
        (b"a = 1\nb = '\xe9'  # caf\xe9\n", 2, "b = 'é'  # café"),  # cp1252 without a declaration
        (b"# -*- coding: latin-1 -*-\nb = '\xe9'\n", 2, "b = 'é'"),
        (b"\xef\xbb\xbfa = 1\n", 1, "a = 1"),
        (b"a = 1", 1, "a = 1"),
        (b"a = 1\n", 7, ""),
        (b"", 1, ""),
        (b"a = 1\n", 0, ""),
        (bytes(range(256)) * 3, 1, None),
    ],
)
def test_source_lines_of_any_file(tmp_path: Path, content: bytes, line: int, shown: str | None) -> None:
    file = tmp_path / "source.py"
    file.write_bytes(content)
    found = source_line(str(file), line)
    if shown is None:
        assert isinstance(found, str)
    else:
        assert found == shown


def test_source_lines_that_cannot_be_had(tmp_path: Path) -> None:
    gone = tmp_path / "gone.py"
    gone.write_text("a = 1\n")
    gone.unlink()
    assert source_line(str(gone), 1) == ""
    assert source_line(str(tmp_path), 1) == ""
    long = tmp_path / "long.py"
    long.write_text("x = '" + "y" * 10_000 + "'\n")
    assert len(source_line(str(long), 1)) == 400


def test_a_collection_that_comes_while_a_thread_is_met_for_the_first_time_is_of_no_thread() -> None:
    asked: list[int] = []
    met: list[Here] = []

    def new_thread() -> int:
        asked.extend(here.tid for here in met)  # as what counts the pause of a collection does
        return 7

    met.append(Here(asyncio, new_thread))
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(met[0].tid))
    thread.start()
    thread.join()
    assert (asked, found) == ([0], [7])
