"""The entry: streams and signals are seen to first, since what follows takes a second to import."""

from __future__ import annotations

import os
import signal
import sys


def main() -> int:
    """`rhucrl`, or `python -m rhucrl`."""
    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, _stop)
    _open_streams()
    from rhucrl.runtime import interrupts
    from rhucrl.runtime.terminal import written

    interrupts.expect(sys.argv[1:])
    return interrupts.run(lambda: written(_command))


def _stop(sign: int, _: object) -> None:
    os.write(2, b"stopped: nothing had begun\n")
    os._exit(128 + sign)


def _open_streams() -> None:
    """Closed standard streams lead nowhere; left closed, the next file to be opened would be one of them."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _command() -> int:
    from rhucrl.cli.main import main

    return main()


if __name__ == "__main__":
    sys.exit(main())
