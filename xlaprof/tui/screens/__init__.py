"""What lies above the panels: a finding explained, help, and questions."""
