"""Functions that are traced once: control flow, scans, jax functions."""
