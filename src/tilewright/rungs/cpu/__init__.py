"""Rungs for the CPU, from a for-loop upwards."""
