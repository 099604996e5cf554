"""`python -m fedns.cli`."""

from fedns.cli.app import main

main()
