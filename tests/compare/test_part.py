"""A part is one entry: what another package declares is measured, kept, resumed and told like regard's own."""

import json
from dataclasses import replace

import pytest

from examples.own.own.parameters import PARAMETERS
from regard import RegardError
from regard.compare import registry
from regard.compare.comparison import Comparison, find_kept, measure
from regard.compare.kinds import KINDS
from regard.compare.part import find_part
from regard.compare.registry import PARTS, list_parts
from regard.compare.settings import Settings

PAIR = {name: KINDS[name] for name in ("conv", "gru")}


@pytest.fixture
def declare(monkeypatch):
    """Pretends that an installed package declares parts."""

    def declare(**references):
        monkeypatch.setattr(registry, "find_plugins", lambda kind: references if kind == "compare" else {})

    return declare


@pytest.fixture
def declared(declare):
    declare(parameters="examples.own.own.parameters:PARAMETERS")
    return Settings(parts=("paths", "parameters"), widths=(8, 16)).quicken()


def test_every_part_is_what_it_is_called():
    assert [find_part(name).name for name in PARTS] == list(PARTS)
    assert len({find_part(name).title for name in PARTS}) == len(PARTS)


def test_a_part_of_another_package_is_measured_and_told(declared, tmp_path, capsys):
    assert list(list_parts()) == [*PARTS, "parameters"]
    assert Settings().parts == (*PARTS, "parameters")
    told = []
    found = measure(declared, PAIR, on_progress=lambda part, share: told.append(part))
    assert set(told) == {"paths", "parameters", ""}
    assert [row["numbers"] for row in found.parts["parameters"]["rows"]] == [192, 768, 384, 1536]
    text = found.save(tmp_path / "report.html")[0].read_text(encoding="utf-8")
    assert '<a href="#parameters">Parameters</a>' in text
    assert "<p>The most are learned by GRU: 1,536 at d = 16.</p>" in text
    assert '<th scope="row">convolution</th><td class="right">8</td><td class="right">192</td>' in text
    assert "Longest paths and parameters are counted, and the same on every machine." in text
    assert "--parts paths,parameters" in text
    found.print()
    out = capsys.readouterr().out
    assert "Numbers that a layer learns" in out
    assert "Not measured: operations, steps, cost, recall, order and digits." in out
    assert Comparison.load(tmp_path / "report.json").parts == found.parts


def test_a_part_of_another_package_is_kept(declared, tmp_path, monkeypatch):
    keep = tmp_path / "report.part.json"
    found = measure(declared, PAIR, keep=keep)
    assert find_kept(keep, declared, PAIR) == found

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("examples.own.own.parameters.PARAMETERS", replace(PARAMETERS, measure=stop))
    assert measure(declared, PAIR, keep=keep) == found


def test_numbers_of_a_part_that_is_not_installed_are_refused_by_name(declared, declare, tmp_path):
    _, place = measure(declared, PAIR).save(tmp_path / "report.html")
    declare()
    with pytest.raises(RegardError) as error:
        Comparison.load(place)
    said = f"no part is called 'parameters': regard has {', '.join(PARTS)}; install the package that has it."
    assert str(error.value) == said
    content = json.loads(place.read_text())
    del content["parts"]["parameters"]
    place.write_text(json.dumps(content))
    assert list(Comparison.load(place).parts) == ["paths"]


@pytest.mark.parametrize(("name", "value"), [("other", "PARAMETERS"), ("parameters", "measure_parameters")])
def test_what_is_declared_wrongly_is_named(declare, name, value):
    declare(**{name: f"examples.own.own.parameters:{value}"})
    with pytest.raises(RegardError) as error:
        find_part(name)
    assert str(error.value) == (
        f"entry point regard.compare {name}=examples.own.own.parameters:{value} must be a Part of that name: mend or"
        " remove the package that declares it."
    )


def test_the_name_of_a_part_of_regard_is_taken(declare):
    declare(cost="examples.own.own.parameters:PARAMETERS")
    with pytest.raises(RegardError) as error:
        find_part("cost")
    assert str(error.value) == (
        "entry point regard.compare cost=examples.own.own.parameters:PARAMETERS must have another name, which no part"
        " of regard has: mend or remove the package that declares it."
    )
