"""`plmctl`, also as `python -m plmctl`, which is what torchrun starts. Until all is imported,
Ctrl-C ends without a word.
"""

import atexit
import gc
import signal


def main() -> None:
    """Run the command line."""
    # else the interpreter looks through every object of torch before it ends: 0.3 s
    atexit.register(gc.freeze)
    usual = signal.getsignal(signal.SIGINT) == signal.default_int_handler
    if usual:
        # an exception in the middle of an import would be a traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from plmctl.cli.app import main as run
    from plmctl.core.foreign import end_beside_threads

    if usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run()
    except SystemExit as end:
        end_beside_threads(end.code)
        raise


if __name__ == "__main__":
    main()
