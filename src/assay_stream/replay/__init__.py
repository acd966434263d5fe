"""The same processors over recorded input, in a stated order."""
