"""What writes a recording: scopes and steps, the recorder, the log file, and the samplers that look at stacks."""
