"""The shells that run the core on Kafka. Faust and aiokafka live here (and in ``publish.client``) only."""
