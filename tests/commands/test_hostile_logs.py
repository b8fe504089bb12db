"""Every verb over logs that somebody wrote to do harm: whatever a string holds, what is printed is plain text.

The stories are those that have each kind of finding.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from analysis.test_kinds import PLANTED
from hostile import EVERY, EVIL, MARK, beside, hostile, instead, long
from story import Story, clean, save

import xlaprof
from xlaprof import cli
from xlaprof.commands.run import _warn_early
from xlaprof.events import End, Event
from xlaprof.integrations import pytest_plugin

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
ANNOTATION = re.compile(r"::error (file=[^:,\n]*,line=\d+,)?title=[^:,\n]*::[^\n]*")
LIMITS = ["--max-recompiles=0", "--max-compiles=0", "--max-graph-breaks=0"]
LIMITS += ["--no-fallback", "--no-findings", "--no-config"]


def lines(text: str, styled: bool = False) -> list[str]:
    """The lines of what was printed, none of which does anything but being read."""
    plain = COLOURS.sub("", text) if styled else text
    assert [one for one in plain if not one.isprintable() and one != "\n"] == []
    assert "##[" not in plain
    return plain.split("\n")


def commands(text: str) -> list[str]:
    return [line for line in lines(text) if line.lstrip().startswith("::")]


def written(events: list[Event], change: Callable[[str], str], tmp_path: Path) -> Path:
    """A log with hostile strings in every event and a hostile name. Who ended without an error has none to tell."""
    quiet = [event for event in events if isinstance(event, End) and not event.error]
    header, *events = [event if event in quiet else hostile(event, change) for event in [*Story().events, *events]]
    return save([header, *events, *([] if change is beside else EVERY)], tmp_path / "\x1b[31m\n::error::\u202e.log")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*args: object) -> tuple[int, str, str]:
        code = cli.main([*map(str, args)])
        said = capsys.readouterr()
        assert code in (0, 1, 2), said.err
        return code, said.out, said.err

    return run


@pytest.mark.parametrize(
    ("name", "change"),
    [*((name, beside) for name in PLANTED), ("recompile: another shape", instead), ("recompile: another shape", long)],
)
def test_every_verb_prints_plain_text(
    name: str,
    change: Callable[[str], str],
    tmp_path: Path,
    run: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = written(PLANTED[name](), change, tmp_path)
    code, out, err = run("report", log, "--json")
    assert (code, commands(out + err)) == (0, [])
    findings = json.loads(out)["findings"]
    assert findings
    found = [one["id"] for one in findings][:3]
    other = save(clean().events, tmp_path / "clean.log")
    for args in (
        ["report", log],
        *(["explain", log, one] for one in found),
        *(["explain", log, one, "--json"] for one in found[:1]),
        ["explain", log, EVIL],
        ["compare", log, other],
        ["compare", log, other, "--anyway"],
        ["compare", other, log, "--anyway", "--json"],
        ["check", log, *LIMITS],
        ["show", log],
        ["show", log, "--json"],
        ["show", log, EVIL],
        ["show", log, EVIL, "--form", EVIL],
        ["show", log, EVIL, "--diff", EVIL],
        ["live", log],
        ["tui", log],
        ["live", f"{tmp_path}/{EVIL[:20]}"],
        ["report", f"{tmp_path}/{EVIL[:20]}"],
        [EVIL],
    ):
        _, out, err = run(*args)
        assert commands(out + err) == [], args
        assert MARK in out or args != ["report", log]
    for args in (["check", log, *LIMITS, "--github"], ["check", log, *LIMITS, "--github", "--json"]):
        code, out, err = run(*args)
        if code == 1:
            assert (commands(err) if "--json" in args else commands(out)) != []
        for line in commands(out) + commands(err):
            assert ANNOTATION.fullmatch(line)
    monkeypatch.setenv("FORCE_COLOR", "1")
    _, out, _ = run("report", log)
    assert "\x1b[1" in out
    lines(out, styled=True)
    for line in (str(xlaprof.report(log)), repr(xlaprof.report(log))):
        assert commands(line) == []
    cell = xlaprof.report(log)._repr_html_()
    assert "<" not in re.sub(r'</?(div|b|p|details|summary|span|pre|table|caption|tr|td)( style="[^"<>]*")?>', "", cell)


def test_an_export_says_nothing_but_plain_text(tmp_path: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    pytest.importorskip("tensorboard")
    events = [hostile(event, beside) for event in [*clean().events]]
    log = save([*events, *EVERY], tmp_path / "\x1b[31m\n::error::\u202e.log")
    with log.open("ab") as file:  # kinds that this version does not know
        file.write(json.dumps({"k": EVIL}).encode() + b"\n")
    for flags in ([], ["--json", "--force"]):
        code, out, err = run("export", log, "--to", "tensorboard", "-o", tmp_path / EVIL[:9], *flags)
        assert (code, commands(out + err)) == (0, [])
        assert "unknown kinds" in out + err


def test_what_is_said_while_a_program_runs_is_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    for make in PLANTED.values():
        hear = _warn_early()
        for event in [*(hostile(event, beside) for event in make()), *EVERY]:
            hear(event)
    said = capsys.readouterr().err
    assert MARK in said
    assert commands(said) == []


def test_a_failed_test_says_plain_text() -> None:
    with pytest.raises(pytest.fail.Exception) as failed:
        pytest_plugin._fail(f"{EVIL}\n{EVIL}")
    assert commands(str(failed.value)) == []


def test_the_tests_above_are_of_every_verb() -> None:
    verbs = {"check", "compare", "completion", "explain", "export", "live", "report", "run", "show", "tui"}
    assert set(cli.verbs()) == verbs | {"doctor"}  # which reads no log; tests/doctor has its strings


def test_nothing_is_printed_but_through_the_door() -> None:
    """Of the runtime, which prints what PyTorch/XLA's settings ask it for, only what it says of other processes."""
    package = Path(xlaprof.__file__).parent
    found = []
    for file in sorted(package.rglob("*.py")):
        name = file.relative_to(package).as_posix()
        if not name.startswith(("runtime/", "torch_xla/")) and name != "text/output.py":
            found += [f"{name}: {ast.unparse(call)}" for call in _prints(ast.parse(file.read_text()))]
    assert found == [
        "pages/page.py: console.print(_Safe(render(console.width)))",  # these two into a string
        "reports.py: console.print(render(self, _WIDTH))",
        "running.py: print(e.code, file=sys.stderr)",  # as Python itself prints what a program exits with
    ]


def _prints(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called == "print" or re.search(r"\b(stdout|stderr|console)\.(write|writelines|print)$", called):
                yield node
