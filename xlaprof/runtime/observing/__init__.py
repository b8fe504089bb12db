"""What attaches to the runtime while a recording is on."""
