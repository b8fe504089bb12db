"""Values between host and device: uploads, reads, loaders, jax arrays, printing."""
