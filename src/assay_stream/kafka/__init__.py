"""Clients, transactions, partition tasks, topics and ACLs. aiokafka lives here and nowhere else."""
