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


def _of_sixteen(
    theme: Theme, background: str, foreground: str, muted: str, *, primary: str, success: str, warning: str, error: str
) -> Theme:
    """``theme`` in colours that a terminal of 16 has. Mixed ones would all be the same grey there."""
    meaning = {"primary": primary, "success": success, "warning": warning, "error": error}
    return Theme(
        name=theme.name,
        dark=theme.dark,
        background=background,
        surface=background,
        panel=background,
        foreground=foreground,
        primary=primary,
        secondary=muted,
        accent=primary,
        success=success,
        warning=warning,
        error=error,
        variables={"text-muted": muted, **{f"text-{name}": shade for name, shade in meaning.items()}},
    )


DARK_16 = _of_sixteen(
    DARK, "#000000", "#ffffff", "#aaaaaa", primary="#55ffff", success="#55ff55", warning="#ffff55", error="#ff5555"
)
LIGHT_16 = _of_sixteen(
    LIGHT, "#ffffff", "#000000", "#555555", primary="#0000aa", success="#00aa00", warning="#aa5500", error="#aa0000"
)


def themes(colours: str | None) -> tuple[Theme, Theme]:
    """Dark and light on a terminal of these ``colours``, as rich calls them."""
    return (DARK_16, LIGHT_16) if colours == "standard" else (DARK, LIGHT)
