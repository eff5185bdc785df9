"""Time and limits: samples with their intervals, what the machine can do, what it did meanwhile."""
