"""Calls to evidence: the definition that was in force, its pins and signature, in one record per call."""
