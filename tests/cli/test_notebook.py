"""The notebook runs from its first cell to its last."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))
HANG_GUARD_S = 300


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("default")  # of the notebook machinery, not of ours
def test_a_notebook(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed (async-hfl[dev])")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed (async-hfl[dev])")
    pytest.importorskip("pandas", reason="pandas is not installed (async-hfl[frames])")
    import nbformat
    from jupyter_client import KernelManager
    from jupyter_client.kernelspec import KernelSpec

    # Use the kernel of this interpreter, whatever kernels are registered on the machine.
    monkeypatch.setattr(
        KernelManager,
        "kernel_spec",
        property(lambda _: KernelSpec(argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"])),
    )
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "stored without outputs"
    client = nbclient.NotebookClient(notebook, timeout=HANG_GUARD_S, resources={"metadata": {"path": str(tmp_path)}})
    done = client.execute()
    outputs = [output for cell in done.cells for output in cell.get("outputs", [])]
    assert len([output for output in outputs if "image/png" in output.get("data", {})]) == 2
    # Progress leaves nothing behind: no warning about missing widgets, no empty frame.
    assert not [output for output in outputs if output.get("name") == "stderr"]
    left = [output for output in outputs if output.output_type == "display_data" and "image/png" not in output.data]
    assert not [output for output in left if output.data.get("text/html")]
