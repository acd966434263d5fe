"""Feeds: gateway plug-ins that turn lists and calls into observations, each a thin layer over ``Feed``."""
