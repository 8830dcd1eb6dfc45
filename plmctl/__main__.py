"""`python -m plmctl`, which is also what torchrun starts."""

from plmctl.cli import main

if __name__ == "__main__":
    main()
