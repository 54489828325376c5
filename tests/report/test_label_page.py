"""The page for labelling samples: one key a label, the judge's scores hidden, and a file that `load_labels` reads."""

import base64
import gzip
import json
import re

import pytest
from helpers.each import each
from helpers.reports import report_of, row, scored

from langchain_rageval import ConfigError, Report


def content_of(page):
    """Return the data and the words that are packed into a page, as text."""
    blocks = re.findall(r'<script type="text/plain" id="\w+">([^<]+)</script>', page.read_text(encoding="utf-8"))
    return [gzip.decompress(base64.b64decode(block)).decode() for block in blocks]


def test_the_page_holds_no_scores_and_no_metadata(tmp_path):
    judged = scored(0.0123).model_copy(update={"reason": "SECRET reason", "instrument": "SECRET"})
    Report([row(0, judged, metadata={"model": "SECRET"})]).to_label(1).to_html(tmp_path / "labels.html")
    content = "".join(content_of(tmp_path / "labels.html"))
    assert "When was Munich founded?" in content
    assert "SECRET" not in content
    assert "0.0123" not in content


def test_a_metric_of_your_own_has_a_question_too(tmp_path):
    report_of(scored(1.0, "politeness {x}")).to_label(1).to_html(tmp_path / "labels.html")
    _, data = map(json.loads, content_of(tmp_path / "labels.html"))
    assert data["instruction"] == {
        "en": "Would you give this sample a high score for politeness {x}?",
        "ru": "Заслуживает ли этот пример высокой оценки по метрике politeness {x}?",
    }


@each("scale", [(1, 10), (-1, 3), (3, 3), (5, 1), (0.5, 1), (1, 2, 3), (True, 3)])
def test_a_scale_without_keys_is_refused(tmp_path, scale):
    with pytest.raises(ConfigError, match=r"scale is the lowest and the highest grade, from 0 to 9, as \(1, 5\); got "):
        report_of(scored(1.0)).to_label(1).to_html(tmp_path / "labels.html", scale=scale)
    assert list(tmp_path.iterdir()) == []
