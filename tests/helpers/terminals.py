"""What a command of `rageval` writes to a terminal."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios


def seen(width, *words, **environment):
    """What a command writes to a terminal so wide."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    env |= {"TERM": "xterm-256color", "PYTHONPATH": ":".join(sys.path), **environment}
    command = [sys.executable, "-m", "langchain_rageval", *map(str, words)]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        written = b""
        try:
            while part := os.read(ours, 65536):
                written += part
        except OSError:  # how Linux says that the other end is closed
            pass
        os.close(ours)
    assert process.returncode == 0
    return written.decode()


def shown(width, *words):
    """The lines of it, without colours."""
    return re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", seen(width, *words)).replace("\r", "").split("\n")
