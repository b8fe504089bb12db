"""``jax.jit``, on any device, while it works: each program that is made, why, for which line, and what it cost.

JAX tells listeners when it traces, lowers and compiles (``jax.monitoring``). Then, and only then, its own frame has the
function and the arguments of the call that needed it. A call that finds its program stays in C++, which calls us once
afterwards.

==================  ==========================================================================
:mod:`.listeners`   from what JAX says to events
:mod:`.device`      when the device was busy, and uploads
:mod:`.reads`       values that the host reads and waits for
:mod:`.steps`       steps, named or found
:mod:`.calls`       the calls that needed a program, side by side
:mod:`.freezing`    what is about to be compiled, for ``xlaprof.frozen``
:mod:`.signature`   what a call looks like to JAX, and in what two calls differ
:mod:`.static`      what of it is no array
:mod:`.callbacks`   Python that a program calls while it runs
:mod:`.internals`   what of JAX is private
==================  ==========================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xlaprof.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable

    from xlaprof.recording.frozen import Judge
    from xlaprof.recording.recorder import Recorder

    from .listeners import Listeners


class Jax:
    name = "jax"
    module = "jax"
    vocabulary = Vocabulary(
        arrays="jnp",
        barrier="",
        barrier_code="",
        after_barrier="",
        keep="on the device",
        keep_code="{name}",
        to_host="np.asarray(x)",
        on_device="",
        take="x[index], jnp.take",
        take_code="table[index]",
        write=".at[index].set(value)",
        add=".at[index].add(value)",
        add_code="sums = sums.at[entries].add(values)",
        scalar_code="jnp.asarray([{value}])",
        convert_code="{name}.astype({dtype})",
        pad_code="jnp.pad({name}, ...)",
        load_ahead="a thread or process that makes the next batch meanwhile",
        background="a background thread",
        as_buffer="",
        put_once="Call jax.device_put on it once, before the loop, and pass what that returns",
        put_once_code="{name} = jax.device_put({name})  # once, before the loop",
        send_ahead="call jax.device_put on it in a thread that is a batch or two ahead",
        drop_last="leave out the last batch where it is shorter",
        drop_last_code="",
        warm_code="",
        scalars_as_inputs="",
        until=(
            "Put the whole loop into one function under jax.jit, as a jax.lax.while_loop, which tests the condition on "
            "the device (within a gradient: a fori_loop of a fixed number of turns, with a mask: jnp.where)"
        ),
        shard="jax.device_put(x, sharding)",
    )
    #: the embedded runtime compiles by JAX, too: a log has this source once a program of the user's own was compiled
    announces_itself = True

    def attach(self, rec: Recorder) -> Listeners:
        from .listeners import Listeners

        return Listeners(rec, self.name, self.vocabulary)

    def watch(self, judge: Judge) -> Callable[[], None]:
        from .freezing import watch

        return watch(judge)


LIVE = Jax()
