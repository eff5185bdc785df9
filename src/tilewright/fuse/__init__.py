"""Whole-network compilers: a network becomes one kernel."""
