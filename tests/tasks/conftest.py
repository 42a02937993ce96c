"""What runs are trained with."""

import pytest

from regard.tasks.training.fit import fit
from regard.tasks.training.folder import RunFolder
from regard.tasks.training.machine import Machine
from regard.tasks.training.recipe import Recipe


@pytest.fixture(scope="module")
def fabric():
    return Machine(accelerator="cpu", precision="64-true").launch()


@pytest.fixture
def run(tmp_path, fabric):
    """Trains in a folder; the standing, and the state that was saved last."""

    def call(task, name="run", **recipe):
        folder = RunFolder(tmp_path / name)
        standing = fit(task, folder, Recipe(**recipe), fabric, is_shown=False)
        return standing, folder.load()

    return call
