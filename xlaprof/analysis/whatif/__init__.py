"""The run as two lanes, played again without what a fix would remove: predicted gains."""
