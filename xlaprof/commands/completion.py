"""Print what makes a shell complete verbs, options and files at the Tab key.

    bash   eval "$(xlaprof completion bash)"                                       in ~/.bashrc
    zsh    eval "$(xlaprof completion zsh)"                                        in ~/.zshrc, after compinit
    fish   xlaprof completion fish > ~/.config/fish/completions/xlaprof.fish

At Tab the shell asks xlaprof itself, so new verbs and options need nothing more.
"""

from __future__ import annotations

import argparse

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell that is to complete")


def run(args: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    from xlaprof.text.output import write

    write(shellcode(["xlaprof"], shell=args.shell) + "\n")
    return 0
