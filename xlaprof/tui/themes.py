"""Colours: one accent, and red, amber, green where they mean something."""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="xlaprof-dark",
    dark=True,
    background="#101418",
    surface="#151a1f",
    panel="#1c2329",
    foreground="#d5dbe1",
    primary="#5aa9e6",
    secondary="#8f9aa5",
    accent="#5aa9e6",
    success="#7cb871",
    warning="#e0a64b",
    error="#e5695e",
    variables={"text-muted": "#86919b"},
)
LIGHT = Theme(
    name="xlaprof-light",
    dark=False,
    background="#fbfbf9",
    surface="#f3f3f0",
    panel="#e6e6e1",
    foreground="#22282d",
    primary="#1f6fb2",
    secondary="#6b747c",
    accent="#1f6fb2",
    success="#3d7d35",
    warning="#a3690a",
    error="#b8382d",
    variables={"text-muted": "#737c84"},
)
