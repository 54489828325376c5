"""HTML pages in a real Chromium, and commands on a terminal."""

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from contextlib import contextmanager

import pytest

try:
    from axe_core_python.sync_playwright import Axe
    from playwright.sync_api import expect, sync_playwright
except ModuleNotFoundError:  # only tests of the gate need them
    Axe = expect = sync_playwright = None

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update"]
NEEDS_CHROMIUM = pytest.mark.skipif(
    not (CHROMIUM and Axe), reason="there is no Chromium here, or no playwright or axe-core-python to drive it"
)
PATIENCE = 120_000


def cells_of(told):
    """Return the cells of each row of the tables that a command has shown, without headings."""
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in told.splitlines() if line[:1] == "│"]


EVIL = (
    "</script><script>window.owned = 1</script><img src=x onerror='window.owned = 2'><svg/onload=window.owned=3>"
    "<style>*{display:none}</style>\"'><a href='javascript:window.owned=4'>x</a>{{7*7}}{% raw %}\u202e\u2066<!--"
)


@contextmanager
def running_chromium():
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@contextmanager
def opened_pages(browser):
    """Yield a function that opens a file; at the end no page has asked a network, nor has the console spoken."""
    messages, contexts = [], []

    def open_file(path, fragment="", *, dark=False, width=1300, script=None, context=None):
        if context is None:
            context = browser.new_context(
                color_scheme="dark" if dark else "light", viewport={"width": width, "height": 900}
            )
            contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        if script:
            page.add_init_script(script)
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("dialog", lambda dialog: (messages.append(dialog.message), dialog.dismiss()))
        own = ("file:", "blob:file:", "blob:null")
        page.on("request", lambda request: None if request.url.startswith(own) else messages.append(request.url))
        page.goto(f"file://{path}{fragment}")
        page.wait_for_selector("html[data-ready]")
        return page

    expect.set_options(timeout=PATIENCE)
    yield open_file
    for context in contexts:
        context.close()
    assert messages == []


def seen(width, *words, **environment):
    """Return what a command writes to a terminal of this width."""
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
