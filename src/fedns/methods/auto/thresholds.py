"""Every number that `auto` decides by, with the reason for it. docs/auto.md says on which data they were chosen."""

from __future__ import annotations

import numpy as np

# Columns, sites and rows, by which the first source of curvature is chosen.
# Up to so many columns the Hessian itself; in full and once where it is the same everywhere. Each is where the least of
# bytes + price x exchanges lies, with a price of 256 bytes for "balanced" and of none for "bytes".
FEW_COLUMNS = {"bytes": 16, "balanced": 24}
FEW_QUADRATIC = {"bytes": 16, "balanced": 40}
# Beyond so many columns nothing of the size of their square is made, neither at the server nor at a client: sketches and
# pairs are all there is. A whole matrix would take 134 MB here and grow with the square.
WIDE = 4096
FEW_SITES = 16  # up to here half of the sites solve with their own Hessians, above a few send roots of theirs
ROOT_COLUMNS = {"balanced": 60}  # up to here roots of some from the start with few sites too: one of them is cheap
SENDERS = 4.0  # over the columns, of the sites: in four bits their roots cost what a gradient of all in eight bits does
FEWEST_ROWS_OF_SENDERS = 2  # a column: with fewer their Hessians are mostly penalty
SOLVERS = 0.5  # of the sites, by weight, solve with their own Hessians: all cost a fifth to three times the bytes of half
GOLDEN = 0.618  # multiples of it, modulo one, lie as far apart as they can: others are drawn in every turn

# Sketches.
SKETCHED_ROWS = 120  # of all sites together, in one sketch: what counts is how many they have together
FEWEST_ROWS, MOST_ROWS = 3, 16  # of one site, at first
MOST_SHARES = 8  # rows of a sketch of one client, in those of a client of mean weight
FEWEST_COLUMNS = 64  # a client of mean weight sends no more rows than it has columns, or than this
MOST_SKETCHED_ROWS = 240  # of all sites together, where columns are more than WIDE: the server solves with their root
FORGETTING = 0.5  # the weight of the last sketches or roots beside new ones: less is much dearer on w8a sorted by label
OLDER = 2  # sketches beside the newest that a root holds: what is older has an eighth of its weight
UNKNOWN = 1e-3  # of the mean curvature, where neither penalty nor sketch tells of a direction

# Bits of a number.
GRADIENT_BITS = {"bytes": 6, "balanced": 8, "rounds": 14}
BITS_OF_FEW = {"bytes": 8, "balanced": 10, "rounds": 14}  # at least, where few clients' rounding errors are averaged
BITS_BESIDE_ROOTS = {"bytes": 10, "balanced": 12}  # of a gradient, where all send their roots: errors are what is left
BITS_BESIDE_SOME = 10  # of a gradient of "balanced" with up to ROOT_COLUMNS columns
SKETCH_BITS = {"bytes": 6, "balanced": 7, "rounds": 8}
DIRECTION_BITS = {"bytes": 8, "balanced": 8, "rounds": 12}
HESSIAN_BITS = {"bytes": 10, "balanced": 14, "rounds": 16}  # at most for "rounds"
FEWEST_HESSIAN_BITS = 10  # of 8 and 10, for "rounds"
NOISE_OF_HESSIANS = 0.3  # in the least curvature that the penalty leaves, for "rounds"; of 0.1, 0.3 and 1
PRODUCT_BITS = 7  # of a Hessian times a direction
ROOT_BITS = 4  # of the diagonal of a root, below its leading one: 3 take more rounds
SPAN = 12  # bits of the largest entry of a column of a root, at most
STEP_BITS = 12  # of what the server sends: an error in a step, unlike one in a gradient, is no smaller for many clients
FINE_BITS = 14  # after a step that went too far: the change is back from there, a coarse one leaves its errors behind
SINGULAR = 1e-12  # in scaled columns: curvature that is none

# When curvature is asked for again, and when another source takes over. A round contracts by c if the squared Newton
# decrement falls to c times what it was.
MEAGRE, STALLED = 0.3, 0.6  # a contraction above the first: a third curvature; above the second: a further one
FRESH = 0.2  # with few columns, a new Hessian unless the last step contracted by this
SLOW = 0.5  # a new curvature with a contraction above this does not serve
# Of the decrement by a direction: more, and other roots are asked for: of some of few sites, of some of many, of all.
# It says what the metric is worth, where steps that are cut contract by little whatever theirs is.
LEFT_BY_FEW, LEFT_BY_MANY, LEFT_BY_ALL = 0.2, 0.1, 0.5
SLOW_ROUNDS = 3  # of the clients' own Hessians, before roots of some take over
ASTRAY = 0.1  # a step of theirs that was cut to less: roots of some take over at once
SOMES = 4  # roots of some before sketches take over, where a new one still contracts by more than SLOW
ROOTS = 6  # of all before Hessians take over, where a new one still contracts by more than SLOW
LOOKS = 2  # products that a direction may cost, where sketches or roots of some make the metric
LOOK_AFTER = 0.1  # where clients solve, one product if the last round contracted by more
ENOUGH = 0.3  # of the decrement left by a direction: no further product

# What ways cost, in bytes of a client.
BITS_OF_ENTRY = 4  # of a root: what an entry took, about, on the data sets that the rules were chosen on
BITS_OF_SHARE = 8  # a column: of the roots of some, the mean over all sites
HEADER = 16  # of a message beside its numbers, about
NEWTON = 5  # rounds that a run takes from its third on where the metric is good, about; of 4, 5 and 7
WHOLE_NEWTON = 10  # rounds of a run with Hessians in every round where columns are badly scaled: as many as wine takes
AWAY = 1.0  # how often the squared decrement must still fall by a factor e for a run to be worth another way
PRECISION = 1e-10  # of the objective: as far as a run is thought to go
MOST_LEFT = 0.9  # by two directions, where a prediction is made from it

# Directions and steps.
PAIRS = 30  # of moves and gradient changes that the server keeps
SMALLEST_COSINE = 1e-10  # of a move and its change: below, a pair's curvature is rounding
ARMIJO = 0.1  # of the decrease that the slope promises: a step that has less is taken back
ROUNDING = 1e-14  # of the objective: its rounding error
UNRESOLVED = 100.0  # times that: a promise below is one that losses do not tell from none
BACK = 0.5 ** np.arange(1.0, 12.0)  # fractions of a step that went too far
FURTHER_BACK = BACK[-1] ** np.arange(3.0)  # of these, one after the other, where none of them will do
TRIES_BACK = 3  # in a round: what was stepped back to is rounded, and may be too far again
SURPRISE = 100.0  # times the last round's promise: more is rounding noise, where a loss has no lower bound
FAR = 0.5  # a step that moves margins by more, about, is searched along first, where losses have no lower bound
