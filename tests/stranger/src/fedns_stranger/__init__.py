"""A method, a loss and a sketch of somebody else."""
