"""Graphs that were compiled again: the unnecessary ones, grouped by cause, with explanation and advice."""
