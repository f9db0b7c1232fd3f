"""The model's equations, one a file."""
