"""Barriers: find or compile the program of a graph, hand it to the device, follow it to its end."""
