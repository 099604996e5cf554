"""From a formula to coded rows, and from rows to coefficients with names."""
