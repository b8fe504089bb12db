"""The page as a document: template, style, script and data put together into one file that loads nothing.

Data is JSON in a script element that no browser runs; in it no character is left that HTML gives a meaning. The
content security policy forbids every request, and every script and style but these two, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

#: how each page begins: an export replaces no file that does not
BEGINS = "<!doctype html>\n<!-- report of xlaprof "

_STYLES = ("page", "sections", "charts", "print")
_SCRIPTS = (
    "begin", "elements", "quantities", "colours", "plot", "table", "steps", "rows", "timeline", "selection",
    "findings", "graphs", "breaks", "source", "memory", "overview", "search", "theme", "start",
)  # fmt: skip


def document(views: dict[str, Any]) -> str:
    """The file's text, in ASCII."""
    style, script = _assets()
    title = f"{views['head']['program']}: {views['head']['found']}"
    page = Template(_read("page.html")).substitute(
        version=escape(views["version"]),
        policy=f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        title=escape(title),
        style=style,
        data=data(views),
        script=script,
    )
    return page.encode("ascii", "xmlcharrefreplace").decode("ascii")


def data(views: dict[str, Any]) -> str:
    """``views`` as JSON in ASCII that ends no script element and begins no comment."""
    text = json.dumps(views, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@cache
def _assets() -> tuple[str, str]:
    style = "\n" + "\n".join(_read(f"css/{name}.css") for name in _STYLES)
    script = "\n(() => {\n'use strict';\n" + "\n".join(_read(f"js/{name}.js") for name in _SCRIPTS) + "})();\n"
    return style, script


def _read(name: str) -> str:
    """A file of this package, in ASCII: hashes are of bytes, and the document holds these."""
    return (files(__package__) / "page" / name).read_text("ascii")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
