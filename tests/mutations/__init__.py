"""Logs that are damaged in every way that their grammar allows, read through every door."""
