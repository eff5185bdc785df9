"""More images than one machine takes: work sent to workers of a Ray cluster."""
