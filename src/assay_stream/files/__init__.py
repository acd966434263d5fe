"""Recorded records on disk: archives, spools, and files that appear whole or not at all."""
