"""A real JAX program with a planted mistake: every seventh batch has another size.

``python jitted.py LOG`` records into LOG and calls the function until its standard input ends.
"""

from __future__ import annotations

import sys
import threading

import jax
import jax.numpy as jnp

import xlaprof


@jax.jit
def loss(batch: jax.Array) -> jax.Array:
    return (batch * 2).sum()


if __name__ == "__main__":
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    with xlaprof.record(sys.argv[1]):
        step = 0
        while not stop.wait(0.05):
            rows = 8 + step // 7 if step % 7 == 6 else 8
            with xlaprof.StepTrace("train", step_num=step):
                loss(jnp.ones((rows, 4)))  # here the planted shape arrives
            step += 1
