"""`python -m fedns.cli`."""

from fedns.cli import main

main()
