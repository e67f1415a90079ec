"""`python -m holdfast`: the command line."""

from holdfast.edges.cli import main

main()
