"""Feeds: what gateways embed or call, so that their lists and calls become observations. Each is thin over ``Feed``."""
