"""Graphs that were compiled again: which of them were too many, grouped by cause, and what to say of them."""
