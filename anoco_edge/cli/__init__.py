"""The command line. Every error leaves as one line on stderr and the documented exit code."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys


def main() -> None:
    """Entry point of `anoco-edge`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A file name need not be UTF-8, nor the terminal; \udcXX is what JSON reads back.
        sys.stdout.reconfigure(errors="backslashreplace")
    # Asked to end is asked to stop: what was begun is put away first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _run()
    except KeyboardInterrupt:
        _leave("stopped", 130)
    except BrokenPipeError:
        # The reader of our output went away (`| head`): nobody is left to talk to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        _leave(
            f"cannot use {error.filename or 'the standard output'}: {reason}; check that it is "
            "there, that you may use it, and that the disk is not full",
            1,
        )
    except Exception as error:
        if os.environ.get("ANOCO_DEBUG"):
            raise
        message = " ".join(str(error).split())
        _leave(
            f"internal error: {type(error).__name__}: {message}; this is a bug, please report it "
            "(ANOCO_DEBUG=1 shows where)",
            1,
        )


def _run() -> None:
    from anoco_edge.cli.app import app
    from anoco_edge.errors import AnocoError

    try:
        app(prog_name="anoco-edge")
    except AnocoError as error:
        _leave(str(error), error.exit_code)


def _leave(message: str, code: int) -> None:
    with contextlib.suppress(OSError):  # nobody reads it, or its disk is full: say why all the same
        sys.stdout.flush()
    sys.stderr.write(f"anoco-edge: {message}\n")
    sys.exit(code)
