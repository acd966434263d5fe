"""Logs that others write of calls, as observations: each says less than a tap does, and every record says what."""
