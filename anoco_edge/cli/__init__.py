"""The command line; every error is one line on stderr with the documented exit code."""

from __future__ import annotations

import io
import os
import signal
import sys


def main() -> None:
    """Entry point of `anoco-edge`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Neither a file name nor the terminal need be UTF-8. Such a byte is written as \udcXX,
        # which JSON reads back.
        sys.stdout.reconfigure(errors="backslashreplace")
    # SIGTERM ends a command as Ctrl-C does, so that temporary files are removed first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _run()
    except KeyboardInterrupt:
        _leave("stopped", 130)
    except BrokenPipeError:
        # The reader of our output ended, as `| head` does, so nobody reads what we write.
        _drop_output()
        sys.exit(1)
    except OSError as error:
        _leave(_refusal(error), 1)
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
    from anoco_edge.cli.app import make_app
    from anoco_edge.cli.flags import with_flags
    from anoco_edge.errors import AnocoError

    try:
        make_app(sys.argv[1:])(prog_name="anoco-edge")
    except AnocoError as error:
        _leave(with_flags(str(error)), error.exit_code)
    except SystemExit as end:
        # Typer turns Ctrl-C into a silent exit. A command that ends by itself has said why.
        if isinstance(getattr(end.__context__, "__cause__", None), KeyboardInterrupt):
            raise KeyboardInterrupt from None
        _flush()  # a full disk at the interpreter's end would print more than one line
        raise


def _refusal(error: OSError) -> str:
    """Say what the operating system refused.

    Errors about our files name them (`storage.atomic_files.writing`), so an error without a file
    name is about the standard output.
    """
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.filename or error.strerror == reason:
        what = f"cannot use {error.filename or 'the standard output'}: {reason}"
    else:  # the text of a library, for example when there is no room for temporary files
        what = " ".join(f"cannot go on: {error.strerror or reason}".split())
    return f"{what}; check that it is there, that you may use it, and that the disk is not full"


def _flush() -> None:
    if sys.stdout is not None:  # the shell may have closed it before the start
        sys.stdout.flush()


def _drop_output() -> None:
    """Discard what could not be written, so that the interpreter does not try again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _leave(message: str, code: int) -> None:
    try:
        _flush()
    except OSError:  # nobody reads the output, or its disk is full; the message is still printed
        _drop_output()
    from anoco_edge.text.plain_text import plain_text

    sys.stderr.write(f"anoco-edge: {plain_text(message)}\n")
    sys.exit(code)
