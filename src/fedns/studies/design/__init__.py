"""A table seen through a study, and through what all sites agreed on: its design rows, the same way at every site."""
