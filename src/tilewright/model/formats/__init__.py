"""Files a network or its weights come from, one module a format."""
