"""Promises of the repository as a whole: what importing costs, who imports whom, what its files may say."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import xlaprof
from xlaprof import cli

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
HEAVY = ("torch", "jax", "jaxlib", "numpy")


def tracked(*patterns: str) -> list[Path]:
    """The files of the repository; those on disk that are not ignored, where there is no git."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, check=True, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs a git checkout")
    return [file for name in listed.split("\0") if name and (file := ROOT / name).is_file()]


def modules_after(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after ``code``."""
    report = "import json, sys; print(json.dumps(sorted({m.partition('.')[0] for m in sys.modules})), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"import atexit\natexit.register(lambda: exec({report!r}))\n{code}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_importing_xlaprof_brings_in_no_framework():
    assert not modules_after("import xlaprof").intersection([*HEAVY, "rich", "textual", "google"])


def test_the_public_names_bring_in_no_framework():
    assert not modules_after("import xlaprof\nfor name in xlaprof.__all__: getattr(xlaprof, name)").intersection(HEAVY)


@pytest.mark.parametrize("verb", sorted(cli.verbs()))
def test_no_verb_brings_in_a_framework_to_explain_itself(verb):
    loaded = modules_after(f"from xlaprof import cli; cli.main([{verb!r}, '--help'])")
    assert "xlaprof" in loaded
    assert not loaded.intersection(HEAVY)


def test_the_version_is_one():
    from importlib.metadata import version

    assert xlaprof.__version__ == PYPROJECT["project"]["version"] == version("xlaprof")
    assert f"## {xlaprof.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_changelog_is_short_enough_to_be_read():
    """What came about on the way to a release is in git; a release has five minutes of its reader."""
    _, *releases = re.split("^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    too_long = {
        title: words for one in releases if (words := len(one.split())) > 1500 for title in one.splitlines()[:1]
    }
    assert releases
    assert not too_long, "one line for one capability, in place of an earlier state's"


def test_the_pins_are_within_the_supported_ranges():
    from packaging.requirements import Requirement

    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    extras = PYPROJECT["project"]["optional-dependencies"].values()
    wanted = [Requirement(r) for group in (PYPROJECT["project"]["dependencies"], *extras) for r in group]
    for requirement in wanted:
        assert requirement.name in pins, f"{requirement.name} is not pinned"
        assert requirement.specifier.contains(pins[requirement.name]), f"{requirement} against {pins[requirement.name]}"


def test_modules_stay_small_enough_to_read():
    too_long = {
        str(file.relative_to(ROOT)): lines for file in tracked("*.py") if (lines := file.read_text().count("\n")) > 500
    }
    assert not too_long


def test_every_module_says_what_it_is_for():
    import ast

    silent = [
        str(file.relative_to(ROOT))
        for file in tracked("xlaprof/*.py")
        if (text := file.read_text()).strip() and not ast.get_docstring(ast.parse(text))
    ]
    assert not silent


#: Traces of one particular machine or person, in whatever file they are.
MACHINE = re.compile(
    rb"/[r]oot/|/[w]ork/\w|/[t]mp/bash|https?://(?:10|127|192)\.\d|[\w.+-]+@[\w-]+\.(?:com|org|net)|%s/"
    % re.escape(bytes(Path.home()))
)


def test_no_file_remembers_the_machine_it_was_made_on():
    found = [
        f"{file.relative_to(ROOT)}: {match[0].decode()}"
        for file in tracked()
        if file != Path(__file__) and (match := MACHINE.search(file.read_bytes()))
    ]
    assert not found


def test_links_between_the_documents_lead_somewhere():
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in tracked("*.md")
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert not broken
