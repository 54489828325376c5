"""Generate the pictures of the README: `PYTHONPATH=. python tests/benchmarks/pictures.py`.

`rageval demo` runs as a reader would run it; its terminal and its page are shown to Chromium, without a network, and
what it draws is written to notebooks/images.
"""

import io
import os
import shutil
import tempfile
import webbrowser
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from langchain_rageval.cli import demo, main
from langchain_rageval.cli.terminal import TableConsole

IMAGES = Path(__file__).parents[2] / "notebooks" / "images"
FONT = "DejaVu Sans Mono"
COLOURS = 96
LARGEST = 150_000  # bytes


def main_job() -> None:
    """Run the demo and take all pictures."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        os.chdir(folder)
        Path("terminal.html").write_text(f"<body style='margin: 0'>{terminal()}</body>", encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        shoot(browser, "terminal.html", "terminal.png", 1280, 880)
        shoot(browser, demo.PAGE, "report.png", 1280, 860)
        shoot(browser, f"{demo.PAGE}#sample=30", "sample.png", 1280, 860)
        browser.close()
        os.chdir(IMAGES)


def terminal() -> str:
    """Return the output of `rageval demo --open` as SVG; writes the page to the current folder."""
    shown = TableConsole(record=True, width=118, force_terminal=True, file=io.StringIO(), highlight=False, emoji=False)
    demo.console = lambda **_: shown
    webbrowser.open = lambda *_: True
    assert main.run(["demo", "--open", "--quiet"]) == 0
    return shown.export_svg(title="rageval demo").replace("Fira Code", FONT)


def shoot(browser: Browser, page: str, name: str, width: int, height: int) -> None:
    """Write the upper part of a page with few colours, for a small file."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme="light")
    context.route("**/*", lambda route: route.continue_() if route.request.url.startswith("file:") else route.abort())
    tab = context.new_page()
    tab.goto(f"file://{Path.cwd()}/{page}")
    if demo.PAGE in page:
        tab.wait_for_selector("html[data-ready]")
        for statement in tab.locator("button.finding").all()[:1]:
            statement.hover()
    shot = Image.open(io.BytesIO(tab.screenshot())).convert("RGB")
    picture = shot.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    picture.save(IMAGES / name, optimize=True)
    size = (IMAGES / name).stat().st_size
    print(f"{name}: {size:,} bytes")
    assert size < LARGEST
    context.close()


if __name__ == "__main__":
    main_job()
