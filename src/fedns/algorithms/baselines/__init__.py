"""Further methods to compare with."""
