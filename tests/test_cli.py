"""The command line: verbs are found, never imported unasked, and mistakes are answered in one line."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from xlaprof import cli, commands
from xlaprof.errors import UserError

COMMAND = [sys.executable, "-m", "xlaprof"]


def xlaprof(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *args], capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **env}
    )


@pytest.fixture
def verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Adds a verb to the command line, given the body of its ``run``."""

    def add(name: str, body: str, arguments: str = "pass") -> None:
        source = (
            f'"""Summary of {name}.\n\nAnd more."""\ndef add_arguments(parser): {arguments}\ndef run(args): {body}\n'
        )
        (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.delitem(sys.modules, f"xlaprof.commands.{name}", raising=False)

    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])
    return add


def test_help_lists_every_verb_with_its_summary_and_imports_none(capsys, verb):
    verb("explode", "pass")
    assert cli.main(["--help"]) == 0
    listed = capsys.readouterr().out
    for name, file in cli.verbs().items():
        assert f"  {name} " in listed
        assert cli.summary(file) in listed
    assert "xlaprof.commands.explode" not in sys.modules


@pytest.mark.parametrize("missing", ["torch", "jax"])
def test_the_runtime_without_its_extra_names_it_in_one_line(missing: str) -> None:
    program = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {missing!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import xlaprof.runtime\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    said = f'xlaprof.runtime needs {missing}, which is not installed: pip install "xlaprof[runtime]"'
    assert done.stderr.splitlines()[-1] == f"ModuleNotFoundError: {said}"
    assert done.stderr.count("Traceback") == 1


def test_the_help_promises_what_is_true(capsys) -> None:
    """JAX is named where a live source observes its programs."""
    from xlaprof.sources import registry

    cli.main(["--help"])
    assert ("JAX" in capsys.readouterr().out) == any(source.name == "jax" for source in registry.live_sources())


def test_without_a_verb_the_help_is_shown_and_the_exit_code_says_that_nothing_was_done(capsys):
    assert cli.main([]) == 2
    assert "usage: xlaprof <verb>" in capsys.readouterr().out


def test_a_verb_gets_its_arguments_and_decides_the_exit_code(verb):
    verb("answer", "return args.n", arguments="parser.add_argument('--n', type=int)")
    assert cli.main(["answer", "--n", "42"]) == 42


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["rnu"], "xlaprof: unknown verb 'rnu': did you mean 'run'?\n"),
        (["zzzzzz"], "xlaprof: unknown verb 'zzzzzz': see xlaprof --help\n"),
        (["--verison"], "xlaprof: unknown option '--verison': see xlaprof --help\n"),
        (["_private"], "xlaprof: unknown verb '_private': see xlaprof --help\n"),
        (["answer", "--m", "1"], "xlaprof: unrecognized arguments: --m 1 (see xlaprof answer --help)\n"),
        (["answer", "--n", "x"], "xlaprof: argument --n: invalid int value: 'x' (see xlaprof answer --help)\n"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(argv, complaint, capsys, verb):
    verb("answer", "return args.n", arguments="parser.add_argument('--n', type=int)")
    verb("_private", "return 0")
    assert cli.main(argv) == 2
    assert capsys.readouterr() == ("", complaint)


def test_a_user_error_is_one_line_with_the_code_it_asks_for(capsys, verb, monkeypatch):
    verb("fail", "raise __import__('xlaprof.errors').errors.UserError('run.log is a directory: name a file', 3)")
    assert cli.main(["fail"]) == 3
    assert capsys.readouterr().err == "xlaprof: run.log is a directory: name a file\n"
    assert UserError("x").code == 2


def test_a_defect_of_xlaprof_is_one_line_that_says_how_to_get_the_traceback(capsys, verb, monkeypatch):
    verb("crash", "return {}['key']")
    monkeypatch.delenv("XLAPROF_TRACEBACK", raising=False)
    assert cli.main(["crash"]) == cli.INTERNAL_ERROR
    err = capsys.readouterr().err
    assert err.startswith("xlaprof: internal error: KeyError: 'key' (crash.py:5)")
    assert "XLAPROF_TRACEBACK=1" in err
    assert err.count("\n") == 1
    monkeypatch.setenv("XLAPROF_TRACEBACK", "1")
    with pytest.raises(KeyError):
        cli.main(["crash"])


def test_output_that_cannot_be_written_is_the_disks_fault() -> None:
    log = Path(__file__).parent.parent / "sample_traces" / "decoder.log"
    for args in (
        ["--help"],
        ["run", "--help"],
        ["report", str(log)],
        ["report", "--json", str(log)],
        ["check", str(log), "--no-fallback"],
    ):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "xlaprof", *args], stdout=full, stderr=subprocess.PIPE, text=True
            )
        assert done.returncode == cli.OUTPUT_LOST
        assert done.stderr == f"xlaprof: cannot write the output: {os.strerror(errno.ENOSPC)}\n"


@pytest.mark.parametrize("columns", ["0", "1", "7"])
def test_a_terminal_of_no_width_still_has_pages(columns: str, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    log = Path(__file__).parent.parent / "sample_traces" / "decoder.log"
    monkeypatch.setenv("COLUMNS", columns)
    for args in (["report", str(log)], ["explain", str(log), "1"], ["compare", str(log), str(log)]):
        assert cli.main(args) == 0
        out, err = capsys.readouterr()
        assert len(out) > 500
        assert err == ""


def test_ctrl_c_is_130_without_a_traceback(capsys, verb):
    verb("wait", "raise KeyboardInterrupt")
    assert cli.main(["wait"]) == 130
    assert capsys.readouterr().err == ""


def test_a_reader_that_goes_away_is_no_error():
    """``xlaprof ... | head``: the pipe is closed while there is more to print."""
    script = (
        "import sys, types; from xlaprof import cli\n"
        "def run(args):\n"
        "    for i in range(100_000): print('a line of output')\n"
        "    return 0\n"
        "verb = types.SimpleNamespace(__doc__='', add_arguments=lambda parser: None, run=run)\n"
        "sys.modules['xlaprof.commands.run'] = verb\n"
        "sys.exit(cli.main(['run']))\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == cli.BROKEN_PIPE


def test_python_dash_m_is_the_same_command():
    done = xlaprof("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("xlaprof ")
    assert xlaprof("nonsense").returncode == 2


@pytest.mark.parametrize("name", sorted(cli.verbs()))
def test_every_verb_explains_itself(name, capsys):
    summary = cli.summary(cli.verbs()[name])
    assert 10 < len(summary) <= 90
    with pytest.raises(SystemExit) as stopped:
        cli.main([name, "--help"])
    assert stopped.value.code == 0
    out = capsys.readouterr().out
    assert summary in out
    assert f"usage: xlaprof {name}" in out
