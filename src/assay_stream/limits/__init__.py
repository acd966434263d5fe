"""Every bound of the system, with its unit in its name and its reason beside it."""
