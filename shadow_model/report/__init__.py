"""Receipts and metrics becoming one page."""
