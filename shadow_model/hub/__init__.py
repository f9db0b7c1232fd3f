"""Runs on the Hugging Face Hub: pushed while they train, gone on with elsewhere."""
