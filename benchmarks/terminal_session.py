"""Draws docs/pictures/session.svg: a session of the terminal UI, as one SVG that moves by CSS and loads nothing.

    python benchmarks/terminal_session.py

sample_traces/decoder.log, a real recording, grows under the screen; then keys are pressed. Each frame is the UI's own
picture.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "pictures" / "session.svg"
SIZE = (84, 24)
LOG = "run.log"
_SETTLES_S = 0.5
#: seconds that it stays, share of the recording that is written by then, keys
FRAMES: tuple[tuple[float, float, tuple[str, ...]], ...] = (
    (1.5, 0.0, ()),
    (1.5, 0.35, ()),
    (1.5, 0.6, ()),
    (2.5, 1.0, ()),
    (4.0, 1.0, ("g", "2", "1", "enter")),
    (3.5, 1.0, ("7",)),
    (3.0, 1.0, ("6",)),
    (3.0, 1.0, ("9",)),
)
_STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)
_FONT = re.compile(r"@font-face \{.*?\}", re.DOTALL)


def main() -> None:
    os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp()  # nobody's settings
    source = (ROOT / "sample_traces" / "decoder.log").read_bytes().splitlines(keepends=True)
    # the program has long ended, which would be told of one of this machine
    source[0] = re.sub(rb'"host":"[^"]*"', b'"host":"trainer"', source[0])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        pictures = asyncio.run(session(source))
    OUT.write_text(animated(pictures, [seconds for seconds, _, _ in FRAMES]))
    print(OUT, f"{OUT.stat().st_size / 1000:.0f} kB, {len(pictures)} frames")


async def session(lines: list[bytes]) -> list[str]:
    """The picture of each frame."""
    from xlaprof.commands._looking import desk
    from xlaprof.tui.app import LiveApp
    from xlaprof.tui.feed import Feed

    pictures: list[str] = []
    written, now = 0, 0.0
    with closing(Feed(LOG, clock=lambda: now)) as feed:
        app = LiveApp(feed.advance, every_s=None, desk=desk(feed))
        async with app.run_test(size=SIZE) as pilot:
            for _, share, keys in FRAMES:
                upto = round(share * len(lines))
                if upto > written:
                    with open(LOG, "ab") as log:
                        log.writelines(lines[written:upto])
                    written = upto
                for _ in range(2):  # whose log it is, is known from the second time on
                    while not await app.refresh_now():
                        pass
                    if app.report is not None:  # the recording is as old as it is read
                        now = app.report.run.started_unix_s + app.report.run.wall_s
                for key in keys:
                    await pilot.press(key)
                    await pilot.pause(_SETTLES_S)  # what is read or painted in a thread
                await pilot.pause(_SETTLES_S)
                pictures.append(app.export_screenshot(title="xlaprof live run.log"))
    return pictures


def animated(pictures: list[str], seconds: list[float]) -> str:
    """One SVG that shows each picture for its time, over and over; the last one, where motion is not wanted."""
    whole = sum(seconds)
    head = re.match(r"<svg[^>]*>", pictures[0])
    assert head is not None
    rules = [f".frame{{visibility:hidden;animation:{whole:g}s step-end infinite}}"]
    frames = []
    begin = 0.0
    for number, (picture, lasts) in enumerate(zip(pictures, seconds, strict=True)):
        here, past = 100 * begin / whole, 100 * (begin + lasts) / whole
        rules.append(f".f{number}{{animation-name:k{number}}}")
        stops = [] if number == 0 else ["0%{visibility:hidden}"]
        stops += [f"{here:.2f}%{{visibility:visible}}"]
        stops += [] if past > 99.99 else [f"{past:.2f}%{{visibility:hidden}}"]
        rules.append(f"@keyframes k{number}{{{''.join(stops)}}}")
        inside = picture[picture.index(">") + 1 : picture.rindex("</svg>")]
        frames.append(f'<g class="frame f{number}">{_lean(inside, f"t{number}")}</g>')
        begin += lasts
    last = len(pictures) - 1
    rules.append(f"@media (prefers-reduced-motion:reduce){{.frame{{animation:none}}.f{last}{{visibility:visible}}}}")
    return f"{head.group()}<style>{''.join(rules)}</style>{''.join(frames)}</svg>\n"


def _lean(picture: str, name: str) -> str:
    """Without fonts from the network, comments, blanks between elements, and clips of text that fits; short names."""
    picture = _STYLE.sub(lambda style: re.sub(r"\s+", " ", _FONT.sub("", style.group())), picture)
    picture = re.sub(r"<!--.*?-->", "", picture, flags=re.DOTALL)
    picture = re.sub(r'<clipPath id="terminal-\d+-line-\d+">.*?</clipPath>', "", picture, flags=re.DOTALL)
    picture = re.sub(r' clip-path="url\(#terminal-\d+-line-\d+\)"', "", picture)
    picture = re.sub(r"terminal-\d+", name, picture)
    return "".join(line.strip() for line in picture.splitlines())


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT)]
    main()
