"""Pages about a fit: the report, and what left every site."""
