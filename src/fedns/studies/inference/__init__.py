"""Statistics beside coefficients: standard errors, tests, how well a model fits, and how sites differ."""
