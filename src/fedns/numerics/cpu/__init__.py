"""The passes over rows on the processor, compiled by numba.

What is called first stands first:

- `backend.py`: the passes as the rest of the project calls them; `softmax/` for losses with several outputs.
- `parts.py`: a kernel over parts of the rows on threads; `../jit.py` compiles it, `../cache.py` names where.
- `kernels.py`, `local_steps.py`: the kernels, one for each pass. `folding.py`: sums over clients, for the server.
- `rows.py`: what kernels do with rows, whatever these are: `dense.py`, `sparse.py`, `onehot/`.
- `narrow/`: loops of their own for rows of at most 64 columns. `triangles/`: Hessians and what is done with them.
- `sketching.py`, `hadamard.py`: sketches of blocks of rows. `pointwise.py`, `formulas.py`: losses.
- `simd.py`: vectors of eight doubles, for kernels; `emit.py`: what they are made of. `aligned.py`: memory on cache lines.

docs/kernels.md shows the way of a row through them.
"""
