"""What a graph's key in inductor's cache is made of, so that those of ranks can be laid beside each other.

A pure function of the record that inductor writes when it looks a graph up: one hash and text for each of some 600
parts (the lowered graph, its inputs, each setting, PyTorch's version, the machine). No text is kept, hashes only. Ranks
that compile the same have the same here, though each has a device of its own number.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from typing import Any

ARTIFACTS = "fx_graph_cache_"  # how the records' names begin: "fx_graph_cache_miss", "..._hit", "..._bypass"
#: told as one: there may be hundreds
_JOINED = "example_inputs"
#: a device's number, whatever else is the same
_OF_A_RANK = "fx_kwargs[boxed_forward_device_index]"
_LONGEST = 200  # characters of a part's name
_MOST = 2_000  # parts
_PART = re.compile(r"\[(\w+)\] ([\w.\[\]-]+): (.*)", re.DOTALL)
_DEVICE = re.compile(r"\b((?:cuda|xpu|hpu|npu|mtia|xla|mps|privateuseone)(?:', index=|:))\d+")


def without_device_numbers(text: str) -> str:
    """The same text on all ranks, whichever device each has."""
    return _DEVICE.sub(r"\1", text)


def read(payload: Any) -> dict[str, str]:
    """The parts of a key with the hash of each; empty where the record names none."""
    try:
        made = json.loads(payload) if isinstance(payload, str) else payload
    except ValueError:
        return {}
    components = made.get("components") if isinstance(made, dict) else None
    found: dict[str, str] = {}
    several: dict[str, list[str]] = defaultdict(list)
    for one in components[:_MOST] if isinstance(components, list) else ():
        part = _PART.match(one) if isinstance(one, str) else None
        if part is None or part[2] == _OF_A_RANK:
            continue
        known, name, text = part.groups()
        same = without_device_numbers(text)
        value = known[:16] if same == text else _hash(same)
        if name.startswith(_JOINED):
            several[_JOINED].append(value)
        else:
            found[name[:_LONGEST]] = value
    return found | {name: _hash(" ".join(values)) for name, values in several.items()}


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()
