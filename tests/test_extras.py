"""What is said of an extra that is missing: a command that works, from a clone and from an installed package."""

import pathlib
import subprocess
import sys

import pytest

from regard.extras import install


@pytest.fixture
def clone(tmp_path) -> pathlib.Path:
    (tmp_path / "my clone" / "src" / "regard").mkdir(parents=True)
    (tmp_path / "my clone" / "pyproject.toml").write_text("")
    return tmp_path / "my clone"


def test_an_installed_package_comes_from_the_registry(tmp_path):
    assert install("train", tmp_path / "lib/site-packages/regard/extras.py") == "pip install 'regard[train]'"
    # a folder src alone is no clone
    assert install("train", tmp_path / "src/regard/extras.py") == "pip install 'regard[train]'"


def test_a_clone_is_installed_from_its_folder(clone, monkeypatch):
    file = clone / "src/regard/extras.py"
    monkeypatch.chdir(clone)
    assert install("train", file) == "pip install '.[train]'"
    monkeypatch.chdir(clone / "src")
    assert install("plot", file) == f"pip install '{clone}[plot]'"


def test_this_is_a_clone():
    root = pathlib.Path(__file__).parents[1]
    probe = "import sys; from regard.extras import install; print(install('train')); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", probe],
        cwd=root, env={"PYTHONPATH": str(root / "src")}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    said, modules = done.stdout.splitlines()
    assert said == "pip install '.[train]'"
    assert "torch" not in modules.split()
