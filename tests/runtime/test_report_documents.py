"""docs/metrics.md, docs/profiler.md and examples/profile_steps.py do what they say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from tests.export.ask import Tools

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("name", ["metrics", "profiler"])
def test_the_pages_code_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / f"{name}.md").read_text(), re.DOTALL)
    exec(compile("\n".join(blocks), f"docs/{name}.md", "exec"), {"__name__": "page"})
    if name == "metrics":
        assert "Metric: CompileTime" in capsys.readouterr().out


def test_the_example_writes_a_profile_of_its_steps(tmp_path: Path) -> None:
    runpy.run_path(str(ROOT / "examples" / "profile_steps.py"))["main"](str(tmp_path), 3)
    (profile,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    names = [event["name"] for event in Tools(profile).trace()]
    assert [names.count(name) for name in ("train 0", "train 1", "train 2", "forward", "optimizer")] == [1, 1, 1, 3, 3]
