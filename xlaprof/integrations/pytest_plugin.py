"""A budget for a test: ``@pytest.mark.xlaprof(max_recompiles=0)``, and the fixture ``xlaprof_run``.

A test is judged by itself: what other tests compiled is forgotten before it is recorded (:func:`_forget_graphs`).
Other tests are not affected: nothing is recorded, and this module imports nothing that pytest has not imported
already. docs/ci.md says what the limits count.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from xlaprof.analysis.gates.budget import Verdict
    from xlaprof.analysis.gates.limits import Budget
    from xlaprof.analysis.model import Finding, Report
    from xlaprof.events import AnyEvent
    from xlaprof.recording.recorder import record

_MARKER = (
    "xlaprof(max_recompiles=None, max_idle=None, no_findings=None, ...): record the test and hold it to this budget "
    "(the names are those of 'xlaprof check'); without any: no findings"
)
_LONGEST_NAME = 120


@contextmanager
def _own_imports() -> Iterator[None]:
    """xlaprof imports no file of the tests, and what it imports covers none of theirs."""
    __tracebackhide__ = True
    from xlaprof.covered import covered, folders_beside_python

    with covered(*folders_beside_python()):
        yield


class XlaprofRun:
    """The recording of a test: what the fixture ``xlaprof_run`` gives.

    ``path`` is its log. :meth:`report`, :attr:`findings` and :meth:`check` cover the test so far.
    """

    def __init__(self, path: Path, folder: tempfile.TemporaryDirectory[str] | None) -> None:
        self.path = path
        self._folder = folder
        self._recording: record | None = None

    @_own_imports()
    def report(self, since_step: int | None = None) -> Report:
        """The report of what was recorded so far; ``since_step`` leaves out what came before that step."""
        from xlaprof.analysis.run import Run
        from xlaprof.log import read

        self._flush()
        reader = read(self.path)
        run = Run(since_step).feed_all(reader)
        return run.report(str(self.path), reader.notes)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings so far, the most expensive first."""
        return self.report().findings

    @_own_imports()
    def check(self, **limits: Any) -> None:
        """Fail the test if what was recorded so far breaks the budget, as the marker does at its end."""
        __tracebackhide__ = True
        _hold(self, _budget([limits]))

    # -- used by the plugin

    @property
    def kept(self) -> bool:
        """The log stays when the test has ended."""
        return self._folder is None

    def start(self) -> None:
        from xlaprof.recording import recorder

        if recorder.active is not None:
            _fail(
                f"xlaprof: already recording into {recorder.active.path}, so this test cannot be recorded by itself: "
                "stop that recording first, or run pytest without 'xlaprof run'"
            )
        _forget_graphs()
        try:
            self._recording = recorder.record(self.path).start()
        except recorder.RecordingError as error:
            _fail(f"xlaprof: {error}")

    @_own_imports()
    def stop(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.stop()

    def discard(self) -> None:
        self.stop()
        if self._folder is not None:
            self._folder.cleanup()

    def judge(self, budget: Budget) -> Verdict:
        from xlaprof.analysis.gates.budget import judge
        from xlaprof.log import read

        self._flush()

        def events() -> Iterable[AnyEvent]:
            return read(self.path)

        return judge(events, budget, str(self.path) if self.kept else "the recording of the test")

    def _flush(self) -> None:
        from xlaprof.recording import recorder

        if self._recording is not None and recorder.active is not None:
            recorder.active.flush()


def _forget_graphs() -> None:
    """Have the test compile its graphs itself, as if it ran alone, whatever was compiled before it.

    What is recorded and has not run, by other tests or the test's own fixtures, runs now. Nothing is imported.
    """
    runtime = sys.modules.get("xlaprof.runtime")
    if runtime is not None:
        runtime.forget_graphs()
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        dynamo.reset()


_KEY: pytest.StashKey[XlaprofRun] = pytest.StashKey()
_WRONG: pytest.StashKey[str] = pytest.StashKey()  # a complaint about the marker


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("xlaprof").addoption(
        "--xlaprof-log-dir",
        metavar="DIR",
        help="keep the recordings of tests that are recorded (marker or fixture) in DIR, one log for each",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have a marker that cannot be understood reported once: the first test that has it fails, the others do not run.

    The same in each worker of xdist, which share the tests out among themselves.
    """
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        for mark in item.iter_markers("xlaprof"):
            if complaint := _complaint(mark):
                tests.setdefault(complaint, []).append(item)
    left_out: list[pytest.Item] = []
    for complaint, marked in tests.items():
        first, *others = marked
        more = f" (this marker is on {len(others)} more, which did not run)" if others else ""
        first.stash[_WRONG] = f"xlaprof: {complaint}{more}"
        left_out += [item for item in others if _WRONG not in item.stash]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


@_own_imports()
def _complaint(mark: pytest.Mark) -> str:
    from xlaprof.analysis.gates.limits import BudgetError, budget

    if mark.args:
        return f"the marker takes limits by name, not {mark.args[0]!r}"
    try:
        budget(mark.kwargs)
    except BudgetError as error:
        return str(error)
    return ""


@pytest.fixture
def xlaprof_run(request: pytest.FixtureRequest) -> Generator[XlaprofRun]:
    """The recording of this test: its log, its report so far, its findings; begins with the fixture."""
    run = _begin(request.node)
    try:
        yield run
    finally:
        run.discard()
        del request.node.stash[_KEY]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    marks = list(item.iter_markers("xlaprof"))
    if not marks:
        return (yield)
    if _WRONG in item.stash:
        _fail(item.stash[_WRONG])
    budget = _budget([mark.kwargs for mark in marks])
    asked_for = _KEY in item.stash  # the fixture began it, and ends it
    run = item.stash[_KEY] if asked_for else _begin(item)
    try:
        result = yield
        run.stop()
        _hold(run, budget)
        return result
    finally:
        if not asked_for:
            run.discard()
            del item.stash[_KEY]


@_own_imports()
def _begin(item: pytest.Item) -> XlaprofRun:
    directory = item.config.getoption("--xlaprof-log-dir")
    if directory is None:
        folder = tempfile.TemporaryDirectory(prefix="xlaprof-")
        run = XlaprofRun(Path(folder.name) / "run.log", folder)
    else:
        path = Path(item.config.invocation_params.dir, directory)
        path.mkdir(parents=True, exist_ok=True)
        run = XlaprofRun(path / f"{_name(item)}.log", None)
    try:
        run.start()
    except BaseException:
        run.discard()
        raise
    item.stash[_KEY] = run
    return run


def _name(item: pytest.Item) -> str:
    """The test's name as a file's; the worker's too where each runs all tests."""
    name = re.sub(r"[^\w.\-\[\]=]+", "-", item.nodeid).strip("-.")
    if len(name) > _LONGEST_NAME:
        digest = hashlib.blake2s(item.nodeid.encode("utf-8", "replace"), digest_size=4).hexdigest()
        name = f"{name[:_LONGEST_NAME]}-{digest}"
    if item.config.getoption("dist", "no") == "each":
        name = f"{name}.{os.environ.get('PYTEST_XDIST_WORKER', '')}"
    return name


@_own_imports()
def _budget(limits: Sequence[Mapping[str, Any]]) -> Budget:
    """Of several markers the one nearest to the test comes first."""
    from xlaprof.analysis.gates.limits import Budget, BudgetError, budget

    __tracebackhide__ = True
    asked = Budget()
    try:
        for values in limits:
            asked = asked.over(budget(values))
    except BudgetError as error:
        _fail(f"xlaprof: {error}")
    return asked.over(Budget(no_findings="low")) if asked.empty else asked


@_own_imports()
def _fail(text: str) -> NoReturn:
    from xlaprof.text.safe import for_terminal

    __tracebackhide__ = True
    pytest.fail(for_terminal(text), pytrace=False)


@_own_imports()
def _hold(run: XlaprofRun, budget: Budget) -> None:
    from xlaprof.analysis.gates.budget import lines
    from xlaprof.errors import UserError

    __tracebackhide__ = True
    try:
        verdict = run.judge(budget)
    except UserError as error:
        _fail(f"xlaprof: {error}")
    if verdict.kept:
        return
    where = f"xlaprof report {run.path}" if run.kept else "--xlaprof-log-dir DIR keeps the recording"
    _fail("\n".join(["xlaprof: the test broke its budget", *lines([verdict]), f"({where})"]))
