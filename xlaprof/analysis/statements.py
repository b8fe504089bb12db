"""One line of the program as a tree, from the text that a log holds."""

from __future__ import annotations

import ast


def parsed(code: str) -> ast.Module | None:
    """The line's tree; the head of a block gets a body. None: it is a part of a longer statement."""
    for text in (code, f"{code} pass", f"if 0: pass\n{code} pass"):
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
    return None
