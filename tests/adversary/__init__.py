"""What a hostile server can do to its neighbours, tried on real Kafka."""
