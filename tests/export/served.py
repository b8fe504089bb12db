"""TensorBoard itself, on loopback, over a log directory: asked over HTTP, or with a browser."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/")


class Board:
    """A running TensorBoard."""

    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, path: str, **query: str) -> Any:
        """What the server answers, decoded."""
        with urlopen(f"{self.address}{path}?{urlencode(query)}") as answer:
            body = answer.read()
            if answer.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            return json.loads(body)

    def page(self, run: str, tool: str, host: str) -> str:
        """The address of a tool of the Profile tab."""
        return f"{self.address}?{urlencode({'run': run, 'tag': tool, 'host': host})}#profile"


@contextmanager
def served(logdir: Path) -> Iterator[Board]:
    """TensorBoard over ``logdir``, on a free port, until the block ends."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--host", "127.0.0.1", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--load_fast", "false", "--reload_interval", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if found := _ADDRESS.search(line):
                break
        else:
            raise AssertionError(f"TensorBoard did not start: {''.join(said)}")
        yield Board(found[0])
    finally:
        process.terminate()
        process.communicate()
