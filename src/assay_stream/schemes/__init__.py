"""Outside standards, one module each, named after the standard and exact to its vectors."""
