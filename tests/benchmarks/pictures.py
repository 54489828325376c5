"""Generate the pictures of the documentation: `PYTHONPATH=. python tests/benchmarks/pictures.py`.

Pages of reports, a comparison, a trend, a chat and a review are written as a reader would write them, and the output of
`rageval demo` as SVG; Chromium draws them without a network into notebooks/images.
"""

import io
import os
import shutil
import tempfile
import webbrowser
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from langchain_core.documents import Document
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from langchain_rageval import (
    HashingEmbeddings,
    OfflineJudge,
    Report,
    Row,
    Sample,
    Score,
    TestsetGenerator,
    conversation_metrics,
    evaluate,
    faithfulness,
    samples_of,
    trend,
)
from langchain_rageval.cli import demo, main
from langchain_rageval.cli.terminal import TableConsole

IMAGES = Path(__file__).parents[2] / "notebooks" / "images"
FONT = "DejaVu Sans Mono"
COLOURS = 64
LARGEST = 100_000  # bytes
PICTURES = {  # name: page and height in pixels
    "terminal": ("terminal.html", 880),
    "report": (demo.PAGE, 860),
    "sample": (f"{demo.PAGE}#sample=30", 860),
    "comparison": ("comparison.html", 620),
    "trend": ("trend.html", 700),
    "chat": ("chat.html#sample=1", 760),
    "review": ("review.html", 760),
}
FACTS = {
    "When is the fee paid?": "The fee is paid once a year, until the first of March.",
    "Who inspects damage?": "An expert inspects damage within five working days.",
    "Is the sauna insured?": "The sauna is insured together with the house.",
    "How is the policy ended?": "The policy is ended in writing, three months ahead.",
    "What does the policy cost?": "The policy costs 120 euros a year.",
    "Where do I report a fire?": "A fire is reported at the desk in Mill Street.",
    "Who pays the expert?": "The insurer pays the expert.",
    "When does the desk open?": "The desk opens at nine on workdays.",
}


def main_job() -> None:
    """Write all pages and take the pictures."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        os.chdir(folder)
        write_pages()
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name, (page, height) in PICTURES.items():
            shoot(browser, page, f"{name}.png", height)
        browser.close()
        os.chdir(IMAGES)


def write_pages() -> None:
    """Write the pages of the pictures to the current folder."""
    shown = TableConsole(record=True, width=118, force_terminal=True, file=io.StringIO(), highlight=False, emoji=False)
    demo.console = lambda **_: shown
    webbrowser.open = lambda *_: True
    assert main.run(["demo", "--open", "--quiet"]) == 0
    drawing = shown.export_svg(title="rageval demo").replace("Fira Code", FONT)
    Path("terminal.html").write_text(f"<body style='margin: 0'>{drawing}</body>", encoding="utf-8")
    candidate, baseline = answered(6), answered(3)
    candidate.to_html("comparison.html", baseline=baseline, margin=0.05)
    trend(Report(list(rows(300, 0.78))), Report(list(rows(100, 0.9)))).to_html("trend.html")
    chat = [
        ("user", "Is the router free?"),
        ("assistant", "Yes, the router costs 0 euros with each contract."),
        ("user", "I have had my contract since 2019. What do I pay?"),
        ("assistant", "The router costs 79 euros with each contract."),
    ]
    evaluate(samples_of(chat), conversation_metrics(OfflineJudge()), progress=False).to_html("chat.html")
    documents = [Document(" ".join(FACTS.values()), metadata={"source": "terms.md"})]
    generator = TestsetGenerator(OfflineJudge(), embeddings=HashingEmbeddings(), progress=False)
    generator.generate(documents, size=4, seed=7).to_html("review.html")


def answered(right: int) -> Report:
    """Return the report of a system that answers so many of eight questions from the contexts, three times each."""
    samples = [
        {
            "id": f"q{number}-{turn}",
            "question": question,
            "answer": fact if number < right else "Elephants pay on Mondays.",
            "contexts": [fact],
        }
        for turn in range(3)
        for number, (question, fact) in enumerate(FACTS.items())
    ]
    return evaluate(samples, faithfulness(OfflineJudge()), progress=False)


def rows(count: int, mean: float) -> list[Row]:
    """Return rows of five-statement answers, of which the last third is worse, two hours apart."""
    draw, start = Random(7), datetime(2026, 10, 1, tzinfo=UTC)
    found = []
    for number in range(count):
        share = mean - (0.25 if number > 0.66 * count else 0) * (count > 100)
        value = sum(draw.random() < share for _ in range(5)) / 5
        score = Score(metric="faithfulness", aspect="grounding", value=value)
        sample = Sample(question=f"When is fee number {number} paid?", answer="Once a year.")
        when = start + timedelta(hours=2 * number)
        found.append(Row(index=number, sample=sample, scores={"faithfulness": score}, time=when))
    return found


def shoot(browser: Browser, page: str, name: str, height: int) -> None:
    """Write the upper part of a page with few colours, for a small file."""
    context = browser.new_context(viewport={"width": 1280, "height": height}, color_scheme="light")
    context.route("**/*", lambda route: route.continue_() if route.request.url.startswith("file:") else route.abort())
    tab = context.new_page()
    tab.goto(f"file://{Path.cwd()}/{page}")
    tab.wait_for_timeout(500)
    for statement in tab.locator("button.finding:visible").all()[:1]:
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
