"""Serving PyTorch in the process that this is imported in."""
