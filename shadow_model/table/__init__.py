"""Codes, layout and file of the frozen table."""
