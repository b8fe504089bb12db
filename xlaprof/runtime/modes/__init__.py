"""When what is recorded is run: at barriers (lazy), at once (eager), or where a function returns (compile)."""
