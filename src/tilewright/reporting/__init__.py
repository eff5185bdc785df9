"""What a report is made from: measured part by part, each in a process of its own, and kept."""
