"""The paper's figures, tables and theorems from one command, each claim with what became of it."""

PENALTY = 1e-3  # lambda of the paper's experiments, whose objective has lambda |w|^2
STRENGTH = 2 * PENALTY  # the same as (strength / 2) |w|^2; d_lambda is taken at it, the curvature that is really added
