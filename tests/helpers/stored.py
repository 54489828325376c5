"""Data of stored files, whole outputs that are compared with a stored file, and figures as text."""

import base64
import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
import yaml

from langchain_rageval import __version__

FIXTURES = Path(__file__).parents[1] / "fixtures"
FOLDER = FIXTURES / "outputs"


def fixture_data(name):
    """Return the data of a YAML file in the folder of fixtures."""
    return yaml.load((FIXTURES / name).read_text(encoding="utf-8"), yaml.CSafeLoader)


def assert_stored(name, text):
    """Compare a text with its stored file, which is written if it does not exist: delete the file to renew it."""
    path = FOLDER / name
    if not path.exists():
        path.write_text(text, encoding="utf-8")
        pytest.fail(f"{path} was written: read it, and run the test again")
    assert text == path.read_text(encoding="utf-8")


def described(figure):
    """Return what a figure draws, in its data coordinates, one line for each text, line and bar."""
    figure.canvas.draw()
    lines = [f"figure {_numbers(figure.get_size_inches())}"]
    for axes in figure.axes:
        spines = [name for name, spine in axes.spines.items() if spine.get_visible()]
        lines += [
            "",
            f"axes {axes.get_title(loc='left')!r} x {_numbers(axes.get_xlim())} y {_numbers(axes.get_ylim())}",
            f"  visible {axes.get_visible()}, frame {axes.axison and spines}, grid {_grid(axes)}, {axes.get_xlabel()}",
        ]
        for axis in (axes.xaxis, axes.yaxis):
            ticks, names = axis.get_ticklocs(), axis.get_ticklabels()
            style = axis.get_tick_params()
            length = axis.get_major_ticks()[0].tick1line.get_markersize() if len(ticks) else None
            lines.append(f"  ticks {_numbers(ticks)} {[name.get_text() for name in names]} {style} {length}")
        for text in axes.texts:
            box = text.get_bbox_patch()
            frame = (_style(box), box.get_boxstyle().pad) if box else ""
            place = f"{text.get_ha()} {text.get_va()} {text.get_fontstyle()} {text.get_fontsize():g}"
            lines.append(
                f"  text {_numbers(text.get_position())} {place} {text.get_color()} {text.get_text()!r} {frame}"
            )
        for line in axes.lines:
            style = f"{line.get_linestyle()} {line.get_linewidth():g} {line.get_marker()} {line.get_markersize():g}"
            lines.append(
                f"  line {_numbers(line.get_xydata().ravel())} {style} {line.get_color()} {line.get_zorder():g}"
            )
        lines += [f"  bar {_numbers(bar.get_bbox().extents)} {_style(bar)}" for bar in axes.patches]
        if legend := axes.get_legend():
            names = [text.get_text() for text in legend.get_texts()]
            place = legend.get_bbox_to_anchor().transformed(axes.transAxes.inverted()).p0
            lines.append(f"  legend {names} {_numbers(place)} {legend._ncols} {legend.get_frame_on()} {legend._loc}")
    return "\n".join(lines) + "\n"


def _numbers(values):
    return " ".join(f"{float(value):.4g}" for value in values)


def _grid(axes):
    lines = [line for axis in (axes.xaxis, axes.yaxis) for line in axis.get_gridlines() if line.get_visible()]
    return sorted({line.get_alpha() for line in lines}, key=str)


def _style(patch):
    colours = [tuple(round(float(part), 3) for part in of()) for of in (patch.get_facecolor, patch.get_edgecolor)]
    return f"{colours} {patch.get_linestyle()} {patch.get_linewidth():g}"


def told(scores):
    """Return scores as text: value, reason and findings, without cost and instrument."""
    lines = []
    for score in scores:
        value = "none" if score.value is None else f"{score.value:.4f}"
        why = score.unscored or (score.failure and score.failure.text) or ""
        lines.append(f"{score.metric} ({score.aspect}, {score.direction}) {value} {why} | {score.reason}")
        lines += [f"    {_finding(finding)}" for finding in score.findings]
    return "\n".join(lines) + "\n"


def _finding(finding):
    fields = finding.model_dump(exclude_defaults=True)
    return " ".join(f"{name}={value!r}" for name, value in fields.items())


def page_text(html, *, with_data=True):
    """Return an HTML page without styles and scripts; blocks of data are unpacked, or left out."""

    def unpacked(match):
        if not with_data:
            return ""
        if not match[2].startswith("H4sI"):  # not compressed
            return match[0]
        data = json.loads(gzip.decompress(base64.b64decode(match[2])))
        return f"{match[1]}: {json.dumps(data, ensure_ascii=False, indent=1)}"

    html = re.sub(r'<script type="text/plain" id="([^"]*)">(.*?)</script>', unpacked, html, flags=re.DOTALL)
    html = re.sub(r"<(style|script)>.*?</\1>|<meta http-equiv[^>]*>", "", html, flags=re.DOTALL)
    return re.sub(r"\n\s*", "\n", html).replace(__version__, "VERSION")


def plain(value, indent=""):
    """Return the fields of an object as text, numbers with six digits."""
    inner = indent + "  "
    if isinstance(value, float):
        return f"{value:.6g}"
    if is_dataclass(value) and not isinstance(value, Mapping):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return "".join(f"\n{indent}{name}: {plain(part, inner)}" for name, part in value.items()) or "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(plain(part, inner) for part in value)}]"
    return str(value)
