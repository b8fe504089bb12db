"""``xlaprof run``: the script cannot tell the difference, and its run is recorded and explained."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import xlaprof
from xlaprof import events

STEPS = """
import xlaprof
for i in range(3):
    with xlaprof.StepTrace("train", step_num=i):
        with xlaprof.Trace("forward"):
            pass
"""


@pytest.fixture
def write(tmp_path: Path):
    def write(name: str, text: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return name

    return write


def python(cwd: Path, *args: str, **popen) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args], cwd=cwd, capture_output=True, text=True, timeout=120, check=False, **popen
    )


def xlaprof_run(cwd: Path, *args: str, **popen) -> subprocess.CompletedProcess[str]:
    return python(cwd, "-m", "xlaprof", "run", *args, **popen)


SELF_PORTRAIT = """
import gc, json, sys
main = sys.modules["__main__"]
print(json.dumps({
    "name": __name__, "file": __file__, "argv": sys.argv, "path0": sys.path[0], "package": __package__,
    "spec": __spec__ and __spec__.name, "cached": __cached__ and "some", "is_main": main.__dict__ is globals(),
    "loader": type(__loader__).__name__, "globals": sorted({*globals()} - {"__annotations__"}), "doc": __doc__,
    "builtins": type(__builtins__).__name__, "gc": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()],
}))
"""


@pytest.mark.parametrize(
    "command", [["me.py"], ["sub/me.py", "-o", "mine", "--json", "--", "-x"], ["./link.py", "a b"]]
)
def test_a_script_sees_what_python_would_show_it(command, tmp_path, write):
    write("me.py", SELF_PORTRAIT)
    write("sub/me.py", SELF_PORTRAIT)
    (tmp_path / "link.py").symlink_to(tmp_path / "sub" / "me.py")
    plain = python(tmp_path, *command)
    ours = xlaprof_run(tmp_path, "--no-report", *command)
    assert json.loads(ours.stdout) == json.loads(plain.stdout)
    assert (ours.returncode, ours.stderr) == (0, "")


@pytest.mark.parametrize("command", [["pkg.me", "-m", "x"], ["pkg", "--json"], ["me"]])
def test_a_module_sees_what_python_would_show_it(command, tmp_path, write):
    write("me.py", SELF_PORTRAIT)
    write("pkg/me.py", SELF_PORTRAIT)
    write("pkg/__init__.py", "")
    write("pkg/__main__.py", SELF_PORTRAIT)
    plain = python(tmp_path, "-m", *command)
    ours = xlaprof_run(tmp_path, "--no-report", "-m", *command)
    assert json.loads(ours.stdout) == json.loads(plain.stdout)
    assert (ours.returncode, ours.stderr) == (0, "")


ENDINGS = {
    "returns": "print('out')",
    "exits 0": "import sys; sys.exit()",
    "exits 7": "import sys; sys.exit(7)",
    "exits with a message": "import sys; sys.exit('sorry')",
    "raises": "def inner():\n    raise ValueError('bad')\ninner()",
    "raises from": "try:\n    {}['k']\nexcept KeyError as e:\n    raise RuntimeError('second') from e",
    "has its own excepthook": "import sys\nsys.excepthook = lambda *a: print('hooked', a[0].__name__)\n1/0",
    "has exit handlers": "import atexit; atexit.register(print, 'bye'); print('hello')",
    "warns": "import warnings; warnings.warn('careful')",
    "closes its output": "import sys; sys.stdout.close()",
    "replaces its output": "import io, sys; sys.stdout = io.StringIO(); print('nowhere')",
    "reads its input": "print(input())",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_output_traceback_and_exit_code_are_the_scripts_own(ending, tmp_path, write):
    write("end.py", ENDINGS[ending])
    plain = python(tmp_path, "end.py", input="typed\n")
    ours = xlaprof_run(tmp_path, "--no-report", "end.py", input="typed\n")
    assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("use", ['torch.ones(3, device="xla")', 'torch.nn.Linear(2, 2).to("xla")'])
def test_a_program_that_forgot_to_make_xla_a_device_is_told_how(use, tmp_path, write):
    hint = "xlaprof: nothing has made 'xla' a device: add 'import torch_xla' at the top of the program"
    done = xlaprof_run(tmp_path, "--no-report", write("lacks.py", f"import torch\n{use}"))
    assert hint in done.stderr.splitlines()
    done = xlaprof_run(tmp_path, "--no-report", write("fails.py", "raise RuntimeError('another')"))
    assert hint not in done.stderr
    done = xlaprof_run(tmp_path, "--no-report", write("has.py", f"import torch, torch_xla\n{use}"))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.filterwarnings("ignore:os.fork")  # of a process that may have used jax: it execs at once
def test_ctrl_c_ends_the_script_and_the_report_still_comes(tmp_path, write):
    write("loop.py", STEPS + "\nprint('looping', flush=True)\nimport threading; threading.Event().wait()")
    with subprocess.Popen(
        [sys.executable, "-m", "xlaprof", "run", "loop.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # which `make test &` would ignore
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "looping\n"
        process.send_signal(signal.SIGINT)
        err = process.stderr.read()
        assert process.wait(60) == -signal.SIGINT  # as Python ends a script: shells stop their loops for that
    assert "KeyboardInterrupt" in err
    assert "xlaprof/commands" not in err
    assert "train" in err  # the report
    end = list(xlaprof.read(tmp_path / "run.log"))[-1]
    assert isinstance(end, events.End)
    assert end.error == "KeyboardInterrupt"


def test_the_run_is_recorded_to_its_very_end(tmp_path, write):
    """Threads that outlive the main one, and exit handlers, still belong to the program."""
    write(
        "late.py",
        """
        import atexit, threading, xlaprof
        main_is_done = threading.Event()
        def work():
            threading.main_thread().join()
            with xlaprof.Trace("in a thread"): pass
        def bye():
            with xlaprof.Trace("at exit"): pass
        threading.Thread(target=work).start()
        atexit.register(bye)
        """,
    )
    done = xlaprof_run(tmp_path, "-o", "late.log", "--no-report", "late.py")
    assert (done.returncode, done.stderr) == (0, "")
    recorded = list(xlaprof.read(tmp_path / "late.log"))
    names = {e.id: e.text for e in recorded if isinstance(e, events.Text)}
    assert [names[e.name] for e in recorded if isinstance(e, events.Scope)] == ["in a thread", "at exit"]
    assert isinstance(recorded[-1], events.End)
    assert recorded[-1].error == ""


def test_the_report_goes_to_stderr_and_the_scripts_output_can_be_piped(tmp_path, write):
    write("steps.py", STEPS + "\nprint('mine')")
    done = xlaprof_run(tmp_path, "steps.py")
    assert (done.returncode, done.stdout) == (0, "mine\n")
    assert "train" in done.stderr
    again = python(tmp_path, "-m", "xlaprof", "report", "run.log")
    assert again.stdout.split() == done.stderr.split()


def test_the_report_as_json_is_that_of_the_report_verb(tmp_path, write):
    write("chatty.py", STEPS + "import sys; print('{'); print('}', file=sys.stderr)")
    done = xlaprof_run(tmp_path, "--json", "chatty.py")
    assert (done.stdout, done.stderr) == ("{\n", "}\nxlaprof: the report is in run.json\n")
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("run.log", "run.json")] == [0o600, 0o600]
    xlaprof_run(tmp_path, "--json", "--log-mode", "640", "chatty.py")
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("run.log", "run.json")] == [0o640, 0o640]
    again = python(tmp_path, "-m", "xlaprof", "report", "--json", "run.log")
    assert (tmp_path / "run.json").read_text() == again.stdout
    (tmp_path / "other.json").mkdir()
    done = xlaprof_run(tmp_path, "--json", "-o", "other.log", "chatty.py")
    assert (done.returncode, done.stderr) == (2, "xlaprof: cannot write the report to other.json: Is a directory\n")


def test_a_file_that_is_no_report_is_not_replaced_by_one(tmp_path, write):
    write("chatty.py", STEPS + "print('ran')")
    write("package.json", '{"name": "mine"}')
    done = xlaprof_run(tmp_path, "--json", "-o", "package.log", "chatty.py")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)  # before the program has begun
    assert "package.json is not a report: " in done.stderr
    assert (tmp_path / "package.json").read_text() == '{"name": "mine"}'
    assert not (tmp_path / "package.log").exists()
    for flags in ((), ("--force",)):  # one that comes while the program runs is left alone, too
        write("late.py", STEPS + "open('late.json', 'w').write('[]')")
        done = xlaprof_run(tmp_path, *flags, "--json", "-o", "late.log", "late.py")
        assert ("late.json is not a report: " in done.stderr) is (not flags)
        assert (tmp_path / "late.json").read_text().startswith("{" if flags else "[]")
    done = xlaprof_run(tmp_path, "--json", "-o", "late.log", "chatty.py")
    assert (done.returncode, done.stderr) == (0, "xlaprof: the report is in late.json\n")


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_recording_into_a_pipe_or_device_has_no_report(flags, tmp_path, write):
    write("chatty.py", STEPS)
    done = xlaprof_run(tmp_path, *flags, "-o", "/dev/null", "chatty.py")
    assert (done.returncode, done.stderr) == (0, "xlaprof: no report: /dev/null is no file that can be read again\n")


def test_what_costs_a_lot_is_said_while_the_script_runs(tmp_path, write):
    write(
        "lengths.py",
        """
        import sys, torch, torch_xla
        for n in range(3, 17):
            x = torch.ones(n).to("xla")
            y = x.sin()
            torch_xla.sync()
        print("the end", file=sys.stderr)
        """,
    )
    told = xlaprof_run(tmp_path, "lengths.py").stderr
    assert told.count("compiled again 10 times") == 1
    assert told.index("xlaprof: compiled again 10 times") < told.index("the end")
    assert "for one cause at lengths.py:4" in told


def test_the_recording_is_of_the_program_whoever_launched_it(tmp_path, write):
    write("steps.py", STEPS)
    assert xlaprof_run(tmp_path, "--no-report", "steps.py", "--fast").returncode == 0
    assert xlaprof.report(tmp_path / "run.log").run.argv == ("steps.py", "--fast")


def test_a_script_that_records_by_itself_joins_the_recording(tmp_path, write):
    write(
        "own.py",
        """
        import xlaprof
        with xlaprof.Trace("before"): pass
        with xlaprof.record("own.log"):
            with xlaprof.Trace("within"): pass
        with xlaprof.Trace("after"): pass
        print("done")
        """,
    )
    done = xlaprof_run(tmp_path, "--no-report", "own.py")
    said = f"xlaprof: already recording into {tmp_path / 'run.log'}: {tmp_path / 'own.log'} is not written\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", said)
    assert not (tmp_path / "own.log").exists()
    recorded = list(xlaprof.read(tmp_path / "run.log"))
    names = {e.id: e.text for e in recorded if isinstance(e, events.Text)}
    assert [names[e.name] for e in recorded if isinstance(e, events.Scope)] == ["before", "within", "after"]


def test_a_program_that_runs_another_under_xlaprof_run_has_two_recordings_and_two_reports(tmp_path, write):
    write("inner.py", STEPS)
    again = "subprocess.run([sys.executable, '-m', 'xlaprof', 'run', 'inner.py'], check=True)"
    done = xlaprof_run(tmp_path, write("outer.py", f"import subprocess, sys, xlaprof\n{again}"))
    assert done.returncode == 0
    where = f"{tmp_path / 'run.log'}: this one records into {tmp_path / 'run.2.log'}"
    assert done.stderr.count(f"xlaprof: another process is recording into {where}\n") == 1
    assert [xlaprof.report(tmp_path / log).run.argv for log in ("run.log", "run.2.log")] == [
        ("outer.py",),
        ("inner.py",),
    ]
    assert done.stderr.count("xlaprof  run.2.log") == done.stderr.count("xlaprof  run.log") == 1


def test_processes_that_do_the_work_unrecorded_are_told_with_the_way_to_record_them(tmp_path, write):
    write("inner.py", "import time\nwhile time.process_time() < 4:\n    pass")
    starts = "import subprocess, sys\nsubprocess.run([sys.executable, {}'inner.py'], check=True)"
    done = xlaprof_run(tmp_path, write("outer.py", starts.format("")))
    said = (
        "xlaprof: processes that the program started took 4 s of the processor and were not recorded: start them with "
    )
    assert f"{said}'python -m xlaprof run SCRIPT'" in done.stderr


@pytest.mark.parametrize("ending", ["", "except KeyboardInterrupt: print('handled'); sys.exit(5)"])
@pytest.mark.parametrize("how", [["stops.py"], ["-m", "stops"]])
def test_an_interrupt_ends_a_program_as_without_xlaprof(how, ending, tmp_path, write):
    body = "import os, signal, sys, threading\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    stops = "os.kill(os.getpid(), signal.SIGINT); threading.Event().wait()"
    write("stops.py", body + (f"try: {stops}\n{ending}\n" if ending else stops))
    plain, ours = python(tmp_path, *how), xlaprof_run(tmp_path, "--no-report", *how)
    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout)
    assert ours.returncode == (5 if ending else -signal.SIGINT)


@pytest.mark.parametrize("code", [0, 5])
def test_an_interrupt_of_the_report_ends_the_process_in_one_line(code, tmp_path, write):
    """Also where the program had ended already, by itself and with a code of its own."""
    write("done.py", STEPS + f"print('done')\nraise SystemExit({code})")
    write(
        "go.py",
        """
        import os, signal, sys
        from xlaprof.pages import terminal
        from xlaprof.cli import main
        def interrupted(*args, **options):
            os.kill(os.getpid(), signal.SIGINT)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        terminal.render = interrupted
        sys.exit(main())
    """,
    )
    done = python(tmp_path, "go.py", "run", "done.py")
    assert (done.returncode, done.stdout) == (-signal.SIGINT, "done\n")
    assert done.stderr == f"xlaprof: interrupted: xlaprof report {tmp_path / 'run.log'} prints the report\n"


@pytest.mark.parametrize("verb", [["run", "-m", "pkg"], ["report", "run.log"]])
def test_an_interrupt_of_any_verb_ends_the_process_by_the_signal(verb, tmp_path, write):
    """Here before the program of ``run`` has begun: shells stop their loops for the signal, not for 130."""
    write("pkg/__init__.py", "import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    write("pkg/__main__.py", "")
    write(
        "go.py",
        """
        import os, signal, sys
        from xlaprof import log
        from xlaprof.cli import main
        signal.signal(signal.SIGINT, signal.default_int_handler)
        log.LogReader.__init__ = lambda *args: os.kill(os.getpid(), signal.SIGINT)
        sys.exit(main())
    """,
    )
    write("run.log", '{"k":"header","schema":1,"pid":1,"mono_ns":1,"unix_ns":1}\n')
    done = python(tmp_path, "go.py", *verb)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_multiprocessing_works_and_only_the_parent_reports(method, tmp_path, write):
    write(
        "workers.py",
        f"""
        import multiprocessing, os
        def square(x): return x * x, os.getpid()
        if __name__ == "__main__":
            with multiprocessing.get_context({method!r}).Pool(2) as pool:
                results = pool.map(square, range(4))
            print([y for y, _ in results], os.getpid() in [pid for _, pid in results])
        """,
    )
    done = xlaprof_run(tmp_path, "--json", "workers.py")
    assert (done.returncode, done.stdout) == (0, "[0, 1, 4, 9] False\n")
    assert done.stderr == "xlaprof: the report is in run.json\n"  # one report, and nothing else
    json.loads((tmp_path / "run.json").read_text())


def test_a_forked_child_that_exits_does_not_report_again(tmp_path, write):
    write("fork.py", "import os, sys\nif os.fork() == 0: sys.exit(0)\nos.wait()")
    done = xlaprof_run(tmp_path, "--json", "fork.py")
    assert (done.returncode, done.stderr) == (0, "xlaprof: the report is in run.json\n")


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ([], "nothing to run: name a script, or a module after -m (see xlaprof run --help)"),
        (["-m"], "-m needs the name of a module (see xlaprof run --help)"),
        (["missing.py"], "no such script: missing.py"),
        (["folder"], "folder is a directory: name a script in it, or a package after -m"),
        (["syntax.py"], "cannot run syntax.py, line 2: invalid syntax"),
        (["picture.png"], "cannot run picture.png"),
        (["-m", "missing_module"], "no module named 'missing_module'"),
        (["-m", "pkg.missing"], "no module named 'pkg.missing'"),
        (["-m", "folder"], "folder is a package without a __main__ module: name a module in it"),
        (["-m", "broken.sub"], "cannot import the packages of 'broken.sub': ValueError: at import"),
        (["-m", "sys"], "module 'sys' has no Python code to run"),
        (["-o", "nowhere/run.log", "fine.py"], "nowhere/run.log"),
        (["-o", "folder", "fine.py"], "folder"),
    ],
)
def test_what_cannot_be_run_is_one_line(command, complaint, tmp_path, write):
    write("folder/note.txt", "")
    write("pkg/__init__.py", "")
    write("broken/__init__.py", "raise ValueError('at import')")
    write("syntax.py", "x = 1\nif while\n")
    write("fine.py", "print('ran')")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00\xff")
    done = xlaprof_run(tmp_path, *command)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("xlaprof: ")
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run.log").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_an_unreadable_script_is_one_line(tmp_path, write):
    write("secret.py", "")
    (tmp_path / "secret.py").chmod(0)
    done = xlaprof_run(tmp_path, "secret.py")
    assert (done.returncode, done.stderr) == (2, "xlaprof: cannot read secret.py: Permission denied\n")
