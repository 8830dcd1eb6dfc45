"""A process that hears nothing and never ends by itself: `python -m toy_child <folder>`; its
number is a file there.
"""

import os
import signal
import sys
import time
from pathlib import Path

from plmctl.core import children as following
from plmctl.training.stop import SIGNALS

if __name__ == "__main__":
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    following.end_after.__kwdefaults__["patience"] = 0.5  # seconds: the test waits for the hard end
    following.follow_starter()
    (Path(sys.argv[1]) / str(os.getpid())).touch()
    time.sleep(600)
