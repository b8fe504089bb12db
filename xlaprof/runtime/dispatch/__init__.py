"""From an ATen call to recorded operations: one handler per operator, and the fallbacks where no lowering covers it."""
