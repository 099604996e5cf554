"""A method, losses, a penalty and a sketch of somebody else."""
