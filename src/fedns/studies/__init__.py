"""Studies: one file that says what is fitted, a handshake between the sites, and coefficients with their names."""

FACTORY = "fedns.studies.serve:service"  # how an engine that starts processes of its own finds a site's service
