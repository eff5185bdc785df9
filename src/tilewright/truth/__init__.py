"""What is right: the reference, what is tried, the proof, and what a failure means."""
