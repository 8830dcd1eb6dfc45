"""`plmctl`, also as `python -m plmctl`, which is what torchrun starts. Until the command
begins, Ctrl-C ends it with a line.
"""

import atexit
import gc
import os
import signal
import sys


def main() -> None:
    """Run the command line."""
    let_threads_sleep()
    # else the interpreter looks through every object of torch before it ends: 0.3 s
    atexit.register(gc.freeze)
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        # an exception in the middle of an import would be a traceback
        signal.signal(signal.SIGINT, end_start)
    from plmctl.cli import app
    from plmctl.core.foreign import end_beside_threads

    app.import_command(sys.argv[1:])
    try:
        app.main()
    except SystemExit as end:
        end_beside_threads(end.code)
        raise
    except KeyboardInterrupt:  # while the words of the command are read
        end_start(signal.SIGINT, None)


def let_threads_sleep() -> None:
    """Let threads of torch turn for some 20 microseconds before they sleep, unless the environment
    says how long. GNU's OpenMP would let them turn for milliseconds.

    On a busy machine a turning thread holds the processor that the others wait for. Two threads
    then took ten times as long as one. On an idle machine this loses 3 to 8%. Results are the same.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def end_start(number: int, frame: object) -> None:
    """End at once, as a command does that Ctrl-C stops."""
    os.write(2, b"plmctl: stopped\n")
    os._exit(130)


if __name__ == "__main__":
    main()
