"""`python -m kway.cli`."""

from kway.cli import main

main()
