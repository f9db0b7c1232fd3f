"""A training loop and its helpers."""
