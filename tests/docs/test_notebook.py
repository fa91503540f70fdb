"""The notebook of the examples runs in a real kernel, shows its graph and its rows, and is stored without output."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import nbformat
from nbclient import NotebookClient

from operators.builder.drawing import rows_html

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "notebook.ipynb"


def test_it_runs_and_shows_graph_rows_and_recoveries(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "it is stored without output"
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    shown = [output["data"] for cell in notebook.cells for output in cell.get("outputs", ())]
    graph, rows, recoveries, same = shown
    drawn = ElementTree.fromstring(graph["image/svg+xml"])
    texts = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["clicks", "source", "visits", "process × 2", "out", "sink"]
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}polyline"))) == 2
    table = rows["text/html"]
    assert "<b>out</b>, 3 rows" in table and "<th>dice</th>" in table and table.count("<td>ann</td>") == 2
    assert (recoveries["text/plain"], same["text/plain"]) == ("1", "True")
    assert not list(tmp_path.iterdir()), "nothing is written"


def test_what_is_shown_cannot_be_markup_and_is_bounded() -> None:
    table = rows_html({"<b>": [{"name": "<script>", "long": "x" * 1000}] * 50})
    assert "<script>" not in table and "&lt;script&gt;" in table and "&lt;b&gt;" in table
    assert table.count("<tr>") == 21 and "and 30 more" in table and "x" * 100 not in table
    assert rows_html({"out": [(1, "a"), (2,)]}).count("<td>") == 3
