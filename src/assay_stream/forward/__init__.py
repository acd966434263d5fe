"""Alerts to receivers: webhooks and syslog, at least once."""
