"""Execute the notebooks and store their outputs; needs `pip install -e ".[docs]"`.

Run it after a change that a reader of the notebooks would see. Cells keep their ids; times of execution are not stored.
"""

import os
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def main() -> None:
    """Execute each notebook in an empty folder and write it back with its outputs."""
    os.environ["PYTHONPATH"] = str(NOTEBOOKS.parent)
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = nbformat.from_dict(nbformat.v4.upgrade(nbformat.reader.reads(path.read_text(encoding="utf-8"))))
        for number, cell in enumerate(notebook.cells):
            if not cell.get("id") or len(cell["id"]) > 20:
                cell["id"] = f"{path.stem.replace('_', '-')}-{number}"
        with tempfile.TemporaryDirectory() as folder:
            client = NotebookClient(
                notebook, record_timing=False, coalesce_streams=True, resources={"metadata": {"path": folder}}
            )
            client.execute()
        for output in (output for cell in notebook.cells for output in cell.get("outputs", [])):
            if len(output.get("data", {})) > 1:
                del output["data"]["text/plain"]  # the notebook shows the HTML or the picture
        notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
        path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
