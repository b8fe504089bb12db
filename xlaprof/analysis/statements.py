"""One line of the program as a tree, from the text that a log holds."""

from __future__ import annotations

import ast

_PAIRS = {"(": ")", "[": "]", "{": "}"}


def parsed(code: str, *, parts: bool = False) -> ast.Module | None:
    """The line's tree; the head of a block gets a body. None: it is a part of a longer statement.

    ``parts``: make a statement of such a part, with the brackets that stand on other lines; what is around it there is
    not known.
    """
    texts = [code, f"{code} pass", f"if 0: pass\n{code} pass"]
    if parts:
        whole = _closed(code)
        texts += [whole, f"_({whole})", f"{{{whole}}}"]
    for text in texts:
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
    return None


def _closed(code: str) -> str:
    """``code`` with the brackets that it lacks on either side."""
    before, after = "", ""
    for sign in code:
        if sign in _PAIRS:
            after = _PAIRS[sign] + after
        elif after.startswith(sign):
            after = after[1:]
        elif sign in _PAIRS.values():
            before = next(opener for opener, closer in _PAIRS.items() if closer == sign) + before
    return f"{before}{code}{after}"
