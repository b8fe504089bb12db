"""Profiling and graph diagnostics for compiled PyTorch."""
