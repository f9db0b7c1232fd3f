"""Generation: rows drawn one after the other, and what they stand for."""
