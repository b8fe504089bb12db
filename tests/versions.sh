#!/bin/sh
# The decoder and the smoke tests under the oldest and the newest supported torch and jax, each in a virtual
# environment of its own under .venv-versions. For people who change a seam between xlaprof and torch or jax.
#
# Mind the downloads: where torch comes only as a CUDA build (Linux wheels of the default registry), an environment
# is 2 to 3 GB to fetch and 5 to 7 GB on disk. To use another source of wheels set PIP_INDEX_URL or
# PIP_EXTRA_INDEX_URL, which pip reads itself.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}

# torch, jax: the ends of the ranges of pyproject.toml
for pair in "2.11.* 0.10.0" "2.15.* 0.11.*"; do
    torch=${pair% *} jax=${pair#* }
    venv=.venv-versions/torch-${torch%.\*}-jax-${jax%.\*}
    printf '\n== torch %s, jax %s: setting up %s\n' "$torch" "$jax" "$venv"
    test -x "$venv/bin/python" || "$PYTHON" -m venv "$venv"
    if ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "torch==$torch" "jax==$jax" "jaxlib==$jax"; then
        echo "skipped: torch $torch with jax $jax does not install for $("$PYTHON" --version)"
        continue
    fi
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[runtime,dev]'
    "$venv/bin/python" -m pytest tests/runtime tests/test_examples.py
done
