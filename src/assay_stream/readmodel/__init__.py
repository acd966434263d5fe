"""The read model: one queryable store of inventory, evidence, alerts, definitions and decisions."""
