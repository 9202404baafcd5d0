"""`python -m kway`: the command line, if its script is not on the path."""

from kway.cli import main

if __name__ == "__main__":
    main()
