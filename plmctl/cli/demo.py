"""`python -m plmctl.cli.demo [FOLDER [MINUTES]]`: the whole main job on the text that comes with
Python and torch, which `make demo` runs.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from plmctl.chain.demo import main

    sys.exit(main(sys.argv[1:]))
