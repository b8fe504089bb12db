"""Shapes and dtypes of results, and the mistakes that they show, in PyTorch's words."""
