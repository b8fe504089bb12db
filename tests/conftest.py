"""What holds for all tests: hypothesis without a clock, and in CI without luck; the order of the files; collections of
what a test made, and no more; the browser that some need."""

import gc
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from chromium import CHROMIUM
from hypothesis import HealthCheck, settings

# A slow machine is not a failing test, so there is no deadline anywhere.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
os.environ["XLAPROF_CACHE_DIR"] = "off"  # what a test compiles is compiled, and in no user's folder
if os.environ.get("TERM") == "dumb":  # pages are drawn in full wherever the tests run
    os.environ["TERM"] = "xterm"
settings.load_profile("ci" if os.environ.get("CI") else "default")

#: what files of tests import that start processes
STARTS = re.compile(r"^(?:import|from) (?:subprocess|processes)\b|\bimport ranks$", re.MULTILINE)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Of the parameters of a test that is ``one_in(n)``, all but every n-th are slow."""
    share = item.get_closest_marker("one_in")
    if share is not None:
        assert isinstance(item, pytest.Function)
        number, diagonal = next(iter(item.callspec.indices.values())), 0  # of several lists, every n-th diagonal
        for length in [len(mark.args[1]) for mark in item.iter_markers("parametrize")][::-1]:
            number, position = divmod(number, length)
            diagonal += position
        if diagonal % share.args[0]:
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(trylast=True)  # after those that are not to run were taken out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first, so that all workers end at once: those that start processes, then those with many
    tests. Whoever names files has them in that order in one process."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        many = Counter(item.path for item in items)
        starts = {path: STARTS.search(path.read_text()) is not None for path in many}
        items.sort(key=lambda item: (not starts[item.path], -many[item.path]))


@pytest.fixture(scope="module", autouse=True)
def only_what_tests_made_is_collected() -> None:
    """A collection looks at what the file's tests made, as in a new process: not at all that was imported for others,
    which takes half a second, each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_lowering_failed() -> Iterator[None]:
    """No lowering that a test meets may fail, or give another shape than PyTorch: all would be right, and slow."""
    yield
    evaluate = sys.modules.get("xlaprof.runtime.trace.evaluate")
    mistakes = dict(evaluate.MISTAKES) if evaluate is not None else {}
    if evaluate is not None:
        evaluate.MISTAKES.clear()
    assert not mistakes, mistakes


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield chromium
        chromium.close()
