"""What a dry run puts in the place of PyTorch's collectives and of decisions that frameworks make by value."""
