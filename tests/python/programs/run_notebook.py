"""Executes cells, given as a JSON list, as a notebook, and prints for each its outputs as nbformat has them."""

import json
import sys

import nbformat
from nbclient import NotebookClient

cells = json.load(sys.stdin)
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
NotebookClient(notebook, timeout=240, kernel_name="python3", allow_errors=True).execute()
json.dump([cell["outputs"] for cell in notebook.cells], sys.stdout)
