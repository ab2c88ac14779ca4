"""The command line. Every error leaves as one line on stderr and the documented exit code."""

from __future__ import annotations

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
        _drop_output()
        sys.exit(1)
    except OSError as error:
        _leave(_trouble(error), 1)
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
    from anoco_edge.cli.flags import with_flags
    from anoco_edge.errors import AnocoError

    try:
        app(prog_name="anoco-edge")
    except AnocoError as error:
        _leave(with_flags(str(error)), error.exit_code)
    except SystemExit as end:
        # Typer makes a silent exit of Ctrl-C; a command that ends itself has said why.
        if isinstance(getattr(end.__context__, "__cause__", None), KeyboardInterrupt):
            raise KeyboardInterrupt from None
        _flush()  # now, not at the interpreter's end: there a full disk is no longer one line
        raise


def _trouble(error: OSError) -> str:
    """What the system refused. Our files are named in errors of their own (`bundle.disk.writing`),
    so a bare refusal by the kernel is about the standard output."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.filename or error.strerror == reason:
        what = f"cannot use {error.filename or 'the standard output'}: {reason}"
    else:  # a library's own words, as when there is no room for temporary files
        what = " ".join(f"cannot go on: {error.strerror or reason}".split())
    return f"{what}; check that it is there, that you may use it, and that the disk is not full"


def _flush() -> None:
    if sys.stdout is not None:  # it may have been closed before the start
        sys.stdout.flush()


def _drop_output() -> None:
    """What could not be written is not tried again at the interpreter's end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _leave(message: str, code: int) -> None:
    try:
        _flush()
    except OSError:  # nobody reads it, or its disk is full: say why all the same
        _drop_output()
    from anoco_edge.text.plain_text import plain_text

    sys.stderr.write(f"anoco-edge: {plain_text(message)}\n")
    sys.exit(code)
