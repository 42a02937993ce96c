"""The wheel is whole, and works where nothing else of this tree is."""

import email
import importlib.util
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

pytest.importorskip("hatchling", reason="hatchling builds the wheel")

ROOT = pathlib.Path(__file__).parents[2]
SRC = ROOT / "src"


def pip(*args: str | pathlib.Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, ROOT)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> pathlib.Path:
    target = tmp_path_factory.mktemp("installed")
    pip("install", "--no-deps", "--no-index", "--target", target, wheel)
    return target


def run_isolated(code: str, first: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Run `code` with `first` and the dependencies' folders on the path, and nothing of this tree.

    -I drops PYTHONPATH and the working folder, -S the .pth files through which an editable install would slip in.
    """
    origins = [importlib.util.find_spec(name).origin for name in ("torch", "numpy", "jaxtyping")]
    folders = dict.fromkeys(str(pathlib.Path(origin).parents[1]) for origin in origins)
    path = f"import sys; sys.path[:] = [{str(first)!r}, *sys.path, *{list(folders)!r}]\n"
    command = [sys.executable, "-I", "-S", "-c", path + code]
    return subprocess.run(command, cwd=first, capture_output=True, text=True, check=False)


def test_wheel_holds_every_module_and_nothing_else(names):
    source = {str(path.relative_to(SRC)) for path in (SRC / "regard").rglob("*.py")}
    assert source
    assert {name for name in names if name.endswith(".py")} == source
    assert "regard/py.typed" in names
    tops = {name.split("/")[0] for name in names}
    assert {re.sub(r"-[\d.]+(?=\.dist-info)", "", top) for top in tops} == {"regard", "regard.dist-info"}


@pytest.mark.parametrize("room", ["core", "score", "weigh", "mask", "bias", "engine"])
def test_wheel_holds_the_room(names, room):
    assert f"regard/{room}/__init__.py" in names


def test_metadata(wheel, names):
    [path] = [name for name in names if name.endswith(".dist-info/METADATA")]
    meta = email.message_from_bytes(zipfile.ZipFile(wheel).read(path))
    needs = {need for need in meta.get_all("Requires-Dist") if "extra ==" not in need}
    assert needs == {"torch>=2.11", "jaxtyping", "numpy"}
    assert meta["Requires-Python"] == ">=3.11"
    assert meta["License-Expression"] == "Apache-2.0"
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_installed_copy_works_alone(installed):
    done = run_isolated(
        "import regard, torch\n"
        "print(regard.__file__)\n"
        "print(regard.attend(torch.zeros(1, 1, 2, 3), torch.zeros(1, 1, 2, 3), torch.ones(1, 1, 2, 3)).sum().item())\n",
        installed,
    )
    assert done.returncode == 0, done.stderr
    file, total = done.stdout.splitlines()
    assert pathlib.Path(file).is_relative_to(installed)
    assert float(total) == pytest.approx(6)


def test_isolation_hides_the_source_tree(tmp_path):
    done = run_isolated("import torch, regard", tmp_path)
    assert "No module named 'regard'" in done.stderr
