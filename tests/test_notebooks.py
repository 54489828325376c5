"""Each notebook runs from top to bottom, imports public names only, and keeps small outputs."""

import ast
import json
import re
from pathlib import Path

import pytest
from helpers.each import each
from helpers.offline import offline

PUBLIC_MODULES = {"langchain_rageval", *(f"langchain_rageval.{name}" for name in ("sinks", "steps", "testset"))}
NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def cells(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def show(cell, title, names):
    """Run a cell, and build the HTML or PNG representation of its last value."""
    tree = ast.parse(cell)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, title, "exec"), names)
    value = last and eval(compile(ast.Expression(last.value), title, "eval"), names)
    representations = [getattr(value, name) for name in ("_repr_html_", "_repr_png_") if hasattr(value, name)]
    assert not representations or any(representation() for representation in representations)


def ran(path):
    """Run a notebook, check its test set and report, and return its variables."""
    names = {}
    for number, cell in enumerate(cells(path), 1):
        show(cell, f"{path.name}, cell {number}", names)
    if "testset" in names:
        assert names["testset"].complete
    if "report" in names:
        assert not names["report"].failures()
        assert all(metric.scored for metric in names["report"].summary().values())
    else:
        assert "assert " in cells(path)[-1]
    return names


def test_notebooks_exist():
    assert NOTEBOOKS


RUNS = [
    pytest.param(p, id=p.stem, marks=() if p.stem in ("quickstart", "vllm") else pytest.mark.gate) for p in NOTEBOOKS
]


@pytest.mark.parametrize("path", RUNS)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran(path)


@each("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_has_cell_ids_and_small_outputs_without_raw_numbers(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in code)
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert path.stat().st_size < 120_000
    texts = [text for output in outputs for kind, text in _contents(output) if kind != "image/png"]
    assert not re.findall(r"\d\.\d{6,}|<\w+ object at", "\n".join(texts))


def _contents(output):
    """Yield kind and text of each representation of an output."""
    for kind, text in output.get("data", {"text": output.get("text", "")}).items():
        yield kind, "".join(text)


@each("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_uses_public_names(path):
    modules = set(re.findall(r"(?:from|import) (langchain_rageval[\w.]*)", "\n".join(cells(path))))
    assert modules
    assert modules <= PUBLIC_MODULES


def notebook(name):
    (path,) = (path for path in NOTEBOOKS if path.stem == name)
    return path


def test_the_gigachat_writer_has_a_high_temperature_and_the_critic_a_low_one(tmp_path, monkeypatch, gigachat_server):
    monkeypatch.chdir(tmp_path)
    asked = []
    server = gigachat_server(lambda request: asked.append(request) or offline(request))
    monkeypatch.setenv("GIGACHAT_CREDENTIALS", "dGVzdDp0ZXN0")
    monkeypatch.setenv("GIGACHAT_BASE_URL", server.url)
    monkeypatch.setenv("GIGACHAT_AUTH_URL", f"{server.url}/oauth")
    monkeypatch.setenv("GIGACHAT_VERIFY_SSL_CERTS", "false")
    names = ran(notebook("russian_with_gigachat"))
    for client in ("writer", "critic", "embeddings"):
        names[client]._client.close()
    sampling = {(request.body["temperature"], request.body.get("top_p")) for request in asked}
    assert sampling == {(1.05, 0.36), (1e-8, None)}
    assert "offline" not in " ".join(names["report"].notes)


def test_vllm_requests_have_a_schema_and_begin_with_the_same_instructions(tmp_path, monkeypatch, openai_server):
    monkeypatch.chdir(tmp_path)
    asked = []
    server = openai_server(lambda request: asked.append(request) or offline(request))
    monkeypatch.setenv("VLLM_BASE_URL", f"{server.url}/v1")
    monkeypatch.setenv("VLLM_MODEL", "m")
    names = ran(notebook("vllm"))
    assert {request.rung for request in asked} == {"json_schema"}
    assert len({request.messages[0]["content"] for request in asked}) == 1
    assert len(asked) == sum(metric.calls for metric in names["report"].summary().values())
