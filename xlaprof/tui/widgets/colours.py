"""The colour of each part of a step, wherever it is drawn."""

from __future__ import annotations

#: part of a step (``xlaprof.text.parts``) -> its colour on dark and on light ground; of 16 colours, too, they differ
_PARTS = {
    "data wait": ("#d9c24a", "#8a7400"),
    "tracing": ("#5a8fe6", "#2258b8"),
    "compile": ("#c678dd", "#8a2fa8"),
    "upload": ("#4fb8c4", "#0f7a87"),
    "dispatch": ("#70c66b", "#2f872a"),
    "transfer wait": ("#e6695f", "#b9261f"),
    "fallback": ("#c8822d", "#e0502a"),
    "garbage collection": ("#b850a8", "#d848c0"),
    "named scopes": ("#8fa8c8", "#4a6488"),
    "other": ("#5c6670", "#a0a8b0"),
}
_GREY = ("#6b747c", "#8a9299")


def colour(part: str, dark: bool) -> str:
    """The colour of a part; of a scope, or a stretch of Python, that of its kind."""
    if part.startswith("scope "):
        part = "named scopes"
    return _PARTS.get(part, _GREY)[not dark]
