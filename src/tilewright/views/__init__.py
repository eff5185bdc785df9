"""A trace turned into something to look at. Views only read."""
