"""`python -m fedkl`."""

from fedkl.cli import main

if __name__ == "__main__":
    main()
