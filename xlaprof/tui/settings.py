"""What the UI remembers from one time to the next: a small file per user, that it can do without."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import msgspec


class Settings(msgspec.Struct):
    """Only what a person chose."""

    theme: str = ""
    panel: str = ""  # the one that had the focus
    sort: str = ""  # the findings' column
    descending: bool = True


def place() -> Path:
    """The file, whether it exists or not."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(home) / "xlaprof" / "tui.json"


def load() -> Settings:
    """What was remembered; nothing where the file is missing, damaged, or of another version."""
    try:
        return msgspec.json.decode(place().read_bytes(), type=Settings)
    except (OSError, ValueError, msgspec.MsgspecError):
        return Settings()


def save(settings: Settings) -> str:
    """Remember ``settings``; why they could not be, or ""."""
    try:
        place().parent.mkdir(parents=True, exist_ok=True)
        beside = place().with_suffix(f".{os.getpid()}")
        beside.write_bytes(msgspec.json.encode(settings))
        beside.replace(place())
    except OSError as error:
        return f"settings are not kept: {error.strerror}"
    return ""


def editor() -> list[str]:
    """The user's, with its options; empty where none is set, or where no shell could read it."""
    try:
        return shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")
    except ValueError:  # a quotation that does not end
        return []
