"""docs/architecture.md and the tree say the same: every file of the package is in exactly one line of the page."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "xlaprof"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
#: | `runtime/tape/` | what the room is for | `tape`, `grow`: new edges of the trie |
ROW = re.compile(r"^\| `([\w/]+/)` \|[^|]*\|(.*)\|$", re.MULTILINE)
#: said in the place of a folder's files: they are one of a kind each, and their names say which
ALL = "one file per"


def folders() -> dict[str, list[str]]:
    """Folder -> names of its modules; ``__init__`` is the folder's door, not a room of its own."""
    found: dict[str, list[str]] = {}
    for file in PACKAGE.rglob("*.py"):
        names = found.setdefault(f"{file.parent.relative_to(ROOT)}/".removeprefix("xlaprof/"), [])
        if file.name != "__init__.py":
            names.append(file.stem)
    return found


def rows() -> dict[str, str]:
    """Folder -> what its line says of its files."""
    lines = ROW.findall(PAGE)
    assert len({folder for folder, _ in lines}) == len(lines), "a folder has two lines"
    return dict(lines)


def covered(folder: str) -> bool:
    """Is the folder, or one around it, described as a whole?"""
    parts = folder.rstrip("/").split("/")
    return any(ALL in rows().get("/".join(parts[:n]) + "/", "") for n in range(1, len(parts) + 1))


@pytest.mark.parametrize("folder", sorted(folders()))
def test_every_file_is_in_exactly_one_line(folder: str) -> None:
    if covered(folder):
        return
    listed = rows().get(folder or "xlaprof/")
    names = folders()[folder]
    if not names and listed is None:
        return  # a folder of folders
    assert listed is not None, f"docs/architecture.md has no line for {folder}"
    listed_names = Counter(re.findall(r"`(\w+)`", listed))
    assert listed_names == Counter(names), (
        f"{folder}: the page and the tree differ in {sorted(set(listed_names) ^ set(names))}"
    )


def test_no_line_is_about_a_folder_that_is_gone() -> None:
    assert set(rows()) - {"xlaprof/"} <= set(folders())


@pytest.mark.parametrize("folder", sorted(folders()))
def test_no_folder_holds_more_than_can_be_taken_in_at_a_glance(folder: str) -> None:
    if not covered(folder):
        assert len(folders()[folder]) <= 16
