"""Studies: one file that says what is fitted, a handshake between the sites, and coefficients with their names."""
