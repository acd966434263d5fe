"""An observer that lists servers itself, so that drift is noticed before an agent meets it."""
