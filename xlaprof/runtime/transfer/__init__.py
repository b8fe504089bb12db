"""What passes between host and device: copies, jax arrays, files, and what is printed."""
