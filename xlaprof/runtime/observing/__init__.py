"""Observers that attach to the runtime while a recording is on."""
