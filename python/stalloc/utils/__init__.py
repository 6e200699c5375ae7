"""Names that training scripts for the artifact of the STAlloc paper import."""
