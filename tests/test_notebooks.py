"""Notebooks: each runs from top to bottom and uses only public names."""

import ast
import json
import re
from pathlib import Path

import pytest
from helpers.servers.brain import offline

PUBLIC_MODULES = {"langchain_rageval", *(f"langchain_rageval.{name}" for name in ("sinks", "steps", "testset"))}
NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def cells(path):
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]


def show(cell, title, names):
    """Run a cell and print its last expression."""
    tree = ast.parse(cell)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, title, "exec"), names)
    value = last and eval(compile(ast.Expression(last.value), title, "eval"), names)
    ways = [getattr(value, way) for way in ("_repr_html_", "_repr_png_") if hasattr(value, way)]
    assert not ways or any(way() for way in ways)


def ran(path):
    """Return the variables of a notebook after its run."""
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


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran(path)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_uses_public_names_and_has_no_stored_outputs(path):
    told = json.loads(path.read_text(encoding="utf-8"))
    assert all(not cell.get("outputs") for cell in told["cells"])
    for module in re.findall(r"from (langchain_rageval[\w.]*) import", "\n".join(cells(path))):
        assert module in (
            "langchain_rageval",
            "langchain_rageval.sinks",
            "langchain_rageval.testset",
            "langchain_rageval.steps",
        )


def notebook(name):
    (path,) = (path for path in NOTEBOOKS if path.stem == name)
    return path


@pytest.fixture
def asked():
    """Return the requests that `brain` has answered."""
    return []


@pytest.fixture
def brain(asked):
    """Return a function that replies offline and records the requests."""

    def answer(request):
        asked.append(request)
        return offline(request)

    return answer


def test_gigachat_writer_and_critic_have_different_temperatures(tmp_path, monkeypatch, gigachat_server, brain, asked):
    monkeypatch.chdir(tmp_path)
    server = gigachat_server(brain)
    monkeypatch.setenv("GIGACHAT_CREDENTIALS", "dGVzdDp0ZXN0")
    monkeypatch.setenv("GIGACHAT_BASE_URL", server.url)
    monkeypatch.setenv("GIGACHAT_AUTH_URL", f"{server.url}/oauth")
    monkeypatch.setenv("GIGACHAT_VERIFY_SSL_CERTS", "false")
    names = ran(notebook("russian_with_gigachat"))
    for client in ("writer", "critic", "embeddings"):
        names[client]._client.close()
    drawn = {(request.body["temperature"], request.body.get("top_p")) for request in asked}
    assert drawn == {(1.05, 0.36), (1e-8, None)}
    assert "offline" not in " ".join(names["report"].notes)


def test_vllm_requests_use_a_schema_and_start_with_the_handbook(tmp_path, monkeypatch, openai_server, brain, asked):
    monkeypatch.chdir(tmp_path)
    server = openai_server(brain)
    monkeypatch.setenv("VLLM_BASE_URL", f"{server.url}/v1")
    monkeypatch.setenv("VLLM_MODEL", "m")
    names = ran(notebook("vllm"))
    names["model"].root_client.close()
    assert {request.rung for request in asked} == {"json_schema"}
    assert len({request.messages[0]["content"] for request in asked}) == 1
    assert len(asked) == sum(metric.calls for metric in names["report"].summary().values())
