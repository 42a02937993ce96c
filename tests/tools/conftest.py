"""The small project that faults are planted in."""

import pathlib

import pytest

from tests.tools.toy import CONTRACT, DOUBLE, TWO, write_files


@pytest.fixture
def project(tmp_path, monkeypatch) -> pathlib.Path:
    """A project of one function and few tests, and things that must not be copied or run."""
    # to find plugins takes longer than all else, and these tests need none
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    files = {
        "src/regard/__init__.py": "",
        "src/regard/room/__init__.py": "",
        "src/regard/room/double.py": DOUBLE,
        "tests/room/test_double.py": TWO,
        "tests/tools/test_always.py": "def test_always():\n    assert False, 'must not be run'\n",
        "tests/engine/test_below.py": "def test_below():\n    assert False, 'must not be run'\n",
        "pyproject.toml": CONTRACT,
        ".venv/left.py": "",
        "src/regard/room/__pycache__/double.pyc": "",
    }
    return write_files(tmp_path / "project", files)
