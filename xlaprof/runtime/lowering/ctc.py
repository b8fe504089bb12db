"""Connectionist temporal classification: the forward algorithm over all alignments, and its gradient.

Alignments are paths through the target with a blank before, between and after its labels (A. Graves et al., 2006).
Lengths are data: one program serves every batch of a shape.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import lax

from .registry import Array, Ctx, lower


def _labels(targets: Array, lengths: Array, count: int) -> Array:
    """Targets as [N, count], from two-dimensional or concatenated ones; elements after a target's end are arbitrary."""
    if targets.ndim == 2:
        if targets.shape[1] >= count:
            return targets[:, :count]
        return jnp.pad(targets, ((0, 0), (0, count - targets.shape[1])))
    starts = jnp.cumsum(lengths) - lengths
    return jnp.take(targets, starts[:, None] + jnp.arange(count), mode="clip")


def _log_sum(*terms: Array) -> Array:
    """log(sum(exp)), also of nothing but -inf, where its gradient is 0."""
    top = functools.reduce(jnp.maximum, terms)
    top = lax.stop_gradient(jnp.where(jnp.isinf(top), 0, top))
    total = sum(jnp.exp(t - top) for t in terms)
    nothing = total == 0
    return jnp.where(nothing, -jnp.inf, jnp.log(jnp.where(nothing, 1, total)) + top)


def _forward(log_probs: Array, labels: Array, inputs: Array, lengths: Array, blank: int) -> tuple[Array, Array]:
    """Negative log likelihoods [N], and the log probabilities [N, T, 2 count + 1] of all ways to get to each place."""
    steps, n, _ = log_probs.shape
    places = 2 * labels.shape[1] + 1
    path = jnp.full((n, places), blank, labels.dtype).at[:, 1::2].set(labels)
    place = jnp.arange(places)
    # A blank is left out between labels that differ.
    before = jnp.concatenate([jnp.full((n, 2), blank, path.dtype), path[:, :-2]], 1) if places > 1 else path
    skips = (place % 2 == 1) & (place > 1) & (path != before)
    seen = jnp.take_along_axis(log_probs, jnp.broadcast_to(path, (steps, *path.shape)), axis=-1, mode="clip")
    possible = place < 2 * lengths[:, None] + 1
    seen = jnp.where(possible, seen, -jnp.inf)

    def shifted(a: Array, by: int) -> Array:
        return jnp.concatenate([jnp.full((n, by), -jnp.inf, a.dtype), a[:, :-by]], 1)[:, :places]

    def advance(a: Array, now: Array) -> tuple[Array, Array]:
        following = now + _log_sum(a, shifted(a, 1), jnp.where(skips, shifted(a, 2), -jnp.inf))
        return following, following

    first = jnp.where(place < 2, seen[0], -jnp.inf)
    _, rest = lax.scan(advance, first, seen[1:])
    alpha = jnp.concatenate([first[None], rest]).swapaxes(0, 1)
    last = jnp.take_along_axis(alpha, jnp.maximum(inputs - 1, 0)[:, None, None], axis=1)[:, 0]
    end = jnp.take_along_axis(last, 2 * lengths[:, None], axis=1)[:, 0]
    label = jnp.take_along_axis(last, jnp.maximum(2 * lengths - 1, 0)[:, None], axis=1)[:, 0]
    loss = -_log_sum(end, jnp.where(lengths > 0, label, -jnp.inf))
    # without steps only the empty target is possible
    return jnp.where(inputs == 0, jnp.where(lengths == 0, 0, jnp.inf), loss), alpha


@lower("aten._ctc_loss.Tensor")
def ctc_loss(
    ctx: Ctx, log_probs: Array, targets: Array, inputs: Array, lengths: Array, blank: int = 0, *zero_infinity: bool
) -> tuple[Array, Array]:
    labels = _labels(targets, lengths, (ctx.out[1].shape[2] - 1) // 2)
    return _forward(log_probs, labels, inputs, lengths, blank)


@lower("aten._ctc_loss_backward.Tensor")
def ctc_loss_backward(
    ctx: Ctx,
    grad: Array,
    log_probs: Array,
    targets: Array,
    input_lengths: Array,
    target_lengths: Array,
    neg_log_likelihood: Array,
    log_alpha: Array,
    blank: int,
    zero_infinity: bool = False,
) -> Array:
    """PyTorch's gradient is that of the logits behind ``log_probs``: probabilities less how often each is visited."""
    labels = _labels(targets, target_lengths, (log_alpha.shape[2] - 1) // 2)
    _, pull = jax.vjp(lambda x: _forward(x, labels, input_lengths, target_lengths, blank)[0], log_probs)
    (visits,) = pull(jnp.ones_like(neg_log_likelihood))
    lost = jnp.isinf(neg_log_likelihood)[:, None]
    gradient = jnp.where(lost, 0 if zero_infinity else jnp.nan, jnp.exp(log_probs) + visits)
    running = jnp.arange(log_probs.shape[0])[:, None, None] < input_lengths[:, None]
    return jnp.where(running, gradient * grad[:, None], 0)
