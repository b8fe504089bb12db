"""How long calls of compiled graphs take, and what lies between them: windows of calls, timed at run time."""
