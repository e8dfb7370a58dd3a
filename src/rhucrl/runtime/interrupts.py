"""Ctrl-C and SIGTERM: whatever the program is doing, it ends soon, without a traceback, and says what continues.

The first signal raises KeyboardInterrupt in the main thread. That can take long, since Python does not run there while
XLA compiles, and it can get lost: an interrupted callback may end in another exception, or in none. So a thread hears
the signals too, and ends the process at the second one, or `GRACE` seconds after the first. Nothing is lost by that:
what is on the disk is whole at every moment.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading

TYPE_CHECKING = False  # no `typing`: this module is there before anything that takes time
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

GRACE = 2.0
SIGNALS = (signal.SIGINT, signal.SIGTERM)

starting = threading.Lock()  # held while a child process is started, and for good when this process ends
children: list[Any] = []  # `Popen`s, which end when we do

_received = 0
_raised = _over = False
_advice: Callable[[], str] = str


def run(main: Callable[[], int]) -> int:
    """What `main` returns or raises, unless a signal comes: then the process ends here, by `leave`."""
    global _over
    try:
        _listen()
        return main()
    finally:
        _over = True
        if _received:
            leave()


def advise(advice: Callable[[], str]) -> None:
    """Set what is said, from now on, to whoever stops the program."""
    global _advice
    _advice = advice


def expect(arguments: Sequence[str]) -> None:
    """What can be said about a command line before it has been read."""
    goes_on = "the same command goes on where it was"
    resume = f"`{' '.join(['rhucrl', *arguments])}` continues"
    known = {"train": "nothing was saved", "resume": resume, "attack": goes_on, "demo": goes_on,
             "evaluate": goes_on}  # fmt: skip
    advise(lambda: known.get("".join(arguments[:1]), ""))


def received() -> bool:
    """Whether the process has been asked to stop."""
    return _received > 0


def stopped() -> int:
    """The end of a command after KeyboardInterrupt: says what continues. Without a signal it gives the exit code."""
    if _received:
        leave()
    print(_message(), file=sys.stderr)
    return 128 + signal.SIGINT


def leave(at_once: bool = False) -> NoReturn:
    """End the process and its children, say what continues; the exit code is a shell's for the signal."""
    try:
        if threading.current_thread() is threading.main_thread():  # else that may be writing, and wait for its reader
            sys.stdout.flush()
    except (OSError, ValueError, RuntimeError):
        pass
    starting.acquire(timeout=1)
    for process in (*children, *_unknown_children()):
        end(process)
    lead = ("\x1b[?25h\n" if at_once else "\r") if os.isatty(2) else ""  # a bar hides the cursor; \r: over the ^C
    try:
        if select.select([], [2], [], 0)[1]:  # else nobody reads, and writing would wait for them
            os.write(2, f"{lead}{_message()}\n".encode())
    finally:
        os._exit(128 + _received)


def end(process: Any) -> None:
    """Kill a child (a `Popen` with a session of its own, or a number) and what it has started."""
    try:
        if isinstance(process, int):
            os.kill(process, signal.SIGKILL)
        elif process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass  # it has ended by itself


def _unknown_children() -> list[int]:
    """What libraries have started, where the system tells."""
    found: list[int] = []
    try:
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/children") as file:
                found += map(int, file.read().split())
    except OSError:
        pass  # another system, or a thread that has just ended
    return found


def _message() -> str:
    try:
        advice = _advice()
    except OSError:
        advice = ""
    return f"stopped: {advice}" if advice else "stopped"


def _listen() -> None:
    for sign in SIGNALS:  # also where a shell had it ignored, as it has for what it starts in the background
        signal.signal(sign, _interrupt)
    hear, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(hear,), daemon=True).start()
    # An interrupt inside a destructor or in C is not always raised but sometimes printed.
    sys.unraisablehook = lambda error: None if _received else sys.__unraisablehook__(error)
    sys.excepthook = lambda *error: None if _received else sys.__excepthook__(*error)
    threading.excepthook = lambda error: None if _received else threading.__excepthook__(error)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # see `processes.started`


def _interrupt(sign: int, frame: Any) -> None:
    global _received, _raised
    _received = _received or sign
    if _raised or _over:
        return
    while frame:  # an exception inside the import of a C++ library can be a crash, and there is nothing to clear up yet
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            leave(at_once=True)
        frame = frame.f_back
    _raised = True
    raise KeyboardInterrupt


def _watch(hear: int) -> None:
    global _received
    while (sign := os.read(hear, 1)[0]) not in SIGNALS:
        pass
    _received = _received or sign
    select.select([hear], [], [], 2 * GRACE if children else GRACE)  # they have a grace of their own
    leave(at_once=True)
