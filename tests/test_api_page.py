"""docs/api.md says what the docstrings say: the public names, their signatures, what they raise.

python tests/test_api_page.py writes the page.
"""

from __future__ import annotations

import inspect
import pydoc
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from story import clean, save

import xlaprof
from xlaprof.reports import RunReport

PAGE = Path(__file__).parent.parent / "docs" / "api.md"
INTRODUCTION = """\
# The Python interface

What `import xlaprof` has; it is as fast as importing nothing, and brings in neither torch nor jax. The runtime behind
`torch.device("xla")` is [`xlaprof.runtime`](runtime.md), PyTorch/XLA's names are [here](torch-xla-scripts.md).
`tests/test_api_page.py` writes this page from the docstrings.
"""
NAMES = [name for name in xlaprof.__all__ if name != "__version__"]


def page() -> str:
    parts = [INTRODUCTION]
    for name in sorted(NAMES, key=str.lower):
        value = getattr(xlaprof, name)
        parts.append(f"## {name}\n")
        if not (inspect.isclass(value) and issubclass(value, Exception)):
            parts.append(f"```python\nxlaprof.{name}{_signature(value)}\n```\n")
        parts.append(_markdown(inspect.getdoc(value) or ""))
        members = vars(value).items() if inspect.isclass(value) else ()
        for member, function in members:
            if not member.startswith("_") and inspect.isfunction(function) and function.__doc__:
                parts.append(
                    f"**`{name}.{member}{_signature(function)}`**  \n{_markdown(inspect.getdoc(function) or '')}"
                )
        if name == "report":
            parts.append(f"**The report.** {_markdown(inspect.getdoc(RunReport) or '')}")
            parts.append(f"**`to_json()`**  \n{_markdown(inspect.getdoc(RunReport.to_json) or '')}")
    return "\n".join(parts)


def _signature(value: object) -> str:
    signature = inspect.signature(value)  # type: ignore[arg-type]
    if inspect.isclass(value):
        signature = signature.replace(return_annotation=inspect.Signature.empty)
    text = re.sub(r"(: |-> )'([^']+)'", r"\1\2", str(signature))  # annotations are strings
    return re.sub(r"^\(self(, )?", "(", text)


def _markdown(text: str) -> str:
    """A docstring, whose code blocks follow a "::" and whose names are in double backticks or roles."""
    text = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", text).replace("``", "`")
    paragraphs = []
    for block in text.split("\n\n"):
        if block.startswith("    "):
            if paragraphs[-1].startswith("```"):  # a blank line inside a block
                paragraphs[-1] = f"{paragraphs[-1][:-4]}\n\n{textwrap.dedent(block)}\n```"
            else:
                paragraphs.append(f"```python\n{textwrap.dedent(block)}\n```")
        elif block.strip() != "::":
            paragraphs.append(re.sub("::$", ":", block))
    return "\n\n".join(paragraphs) + "\n"


def test_the_page_is_what_the_docstrings_say() -> None:
    assert PAGE.read_text() == page(), "docs/api.md is old: python tests/test_api_page.py"


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_explained(name: str) -> None:
    value = getattr(xlaprof, name)
    assert len(inspect.getdoc(value) or "") > 40
    assert inspect.isclass(value) or "Raises" in (inspect.getdoc(value) or ""), "what does it raise?"
    described = (inspect.getdoc(xlaprof) or "").partition("::")[0]
    assert re.search(rf"\b{name}\b", described)


def test_the_package_shows_its_names_and_no_modules() -> None:
    assert dir(xlaprof) == sorted(xlaprof.__all__)
    shown = pydoc.render_doc(xlaprof, renderer=pydoc.plaintext)  # type: ignore[attr-defined]
    first = shown[: shown.index("PACKAGE CONTENTS")]
    assert all(name in first for name in NAMES)


def test_the_package_stays_small_whatever_it_offers() -> None:
    code = (
        "import sys; import xlaprof; dir(xlaprof); "
        "assert not {'torch', 'jax', 'rich', 'msgspec', 'numpy', 'typing'} & set(sys.modules); "
        "xlaprof.report; assert not {'torch', 'jax', 'rich', 'numpy', 'textual'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code.replace("import sys; ", _PATHS, 1)], check=False)
    assert done.returncode == 0


_PATHS = f"import sys; sys.path[:] = {sys.path!r}; "


# -- the report as an object


def test_a_report_is_an_object_that_scripts_and_notebooks_use(tmp_path: Path) -> None:
    from analysis.test_findings import ragged

    log = save(ragged().events, tmp_path / "run.log")
    report = xlaprof.report(log)
    (finding,) = report.findings
    assert (finding.kind, finding.place.line) == ("recompile", 34)
    assert report.to_json()["findings"][0]["id"] == finding.id
    assert repr(report).splitlines()[1:] == ["  1 recompile  train.py:34  500 ms"]
    assert re.fullmatch(
        r"Report of \S+run.log: [\d.]+ s recorded, 21 steps of \S+ ms \(train\), 1 finding",
        repr(report).splitlines()[0],
    )
    assert "Fix: Pad the last batch to 32" in str(report)
    assert "recompile" in report._repr_html_()
    assert "<script" not in report._repr_html_()
    with pytest.raises(xlaprof.LogError, match="has no step 99 or later"):
        xlaprof.report(log, since_step=99)
    with pytest.raises(xlaprof.LogError, match=r"missing\.log does not exist"):
        xlaprof.report(tmp_path / "missing.log")
    assert xlaprof.report(str(save(clean().events, tmp_path / "clean.log")), since_step=2).clean


if __name__ == "__main__":
    PAGE.write_text(page())
