"""What a jaxpr tells of a program before it is lowered."""
