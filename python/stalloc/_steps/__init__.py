"""Training steps: the marks of a script, or what its optimizer tells where it has none."""
