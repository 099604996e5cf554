"""The paper's figures, tables and theorems from one command, each claim with what became of it."""
