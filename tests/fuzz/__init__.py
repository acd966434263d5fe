"""Fuzzing in its long form: ``make fuzz``."""
