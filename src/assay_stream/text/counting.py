"""Counts in sentences."""


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun; ``plural`` defaults to the noun with an s."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
