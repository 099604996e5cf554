"""What statistics add to coefficients: standard errors, tests, how well a model fits, and how sites differ."""
