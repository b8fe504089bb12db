"""Shapes and dtypes of results; mistakes in them are raised in PyTorch's words."""
