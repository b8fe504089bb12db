"""Programs that JAX makes again: what belongs together, why, and how it is told."""
