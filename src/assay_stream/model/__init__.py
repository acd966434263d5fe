"""Every record on a wire, declared once."""
