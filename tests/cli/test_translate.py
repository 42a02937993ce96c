"""`regard translate`: what goes in, what comes out, and what is said of what is wrong."""

import gzip
import html
import json
import os
import shutil

import pytest

from regard.tasks.text.translator import Translation, Translator

TEXTS = ["介绍一下西安", "我想吃饺子", "西安"]
QUICK = ("--max-len", "6", "--device", "cpu")


@pytest.fixture
def expected(run_folder):
    def translate(texts=TEXTS, **options):
        return Translator.load(run_folder, "cpu").translate(texts, max_len=6, **options)

    return translate


def test_texts_a_file_and_stdin_are_the_same(command, run_folder, expected, tmp_path):
    lines = "".join(f"{said.text}\n" for said in expected())
    plain, packed = tmp_path / "a.txt", tmp_path / "a.txt.gz"
    raw = "\n".join(TEXTS).encode()
    plain.write_bytes(raw.replace(b"\n", b"\r\n"))
    packed.write_bytes(gzip.compress(raw))
    assert command("translate", run_folder, *TEXTS, *QUICK) == (0, lines, "")
    assert command("translate", run_folder, *QUICK, stdin=raw) == (0, lines, "")
    assert command("translate", run_folder, "--input", plain, *QUICK) == (0, lines, "")
    assert command("translate", run_folder, "--input", packed, *QUICK) == (0, lines, "")


def test_options_reach_the_search(command, run_folder, expected):
    for options, given in (
        (["--beam", "1"], {"beam": 1}),
        (["--beam", "3", "--alpha", "2", "--batch-size", "1"], {"beam": 3, "alpha": 2.0, "batch_size": 1}),
        (["--sample", "--seed", "7", "--top-k", "9"], {"temperature": 1.0, "seed": 7, "top_k": 9}),
        (["--sample", "--seed", "7", "--temperature", "3.5"], {"temperature": 3.5, "seed": 7}),
    ):
        _, out, _ = command("translate", run_folder, *TEXTS, *QUICK, *options)
        assert out.splitlines() == [said.text for said in expected(**given)]


def test_a_line_for_a_line(command, run_folder):
    status, out, _ = command("translate", run_folder, *QUICK, stdin="西安\n\n  \n西安".encode())
    assert status == 0
    lines = out.split("\n")
    assert len(lines) == 5
    assert lines[0] == lines[3]
    assert lines[1:3] == ["", ""]
    assert command("translate", run_folder, *QUICK, stdin=b"") == (0, "", "")


def test_a_line_break_that_is_said_is_a_space(command, run_folder, monkeypatch):
    said = Translation("西安", "xi\n'an", 0.0, ("西", "安", "<eos>"), ("xi", "\n", "'an", "<eos>"))
    monkeypatch.setattr(Translator, "translate", lambda *args, **options: [said])
    assert command("translate", run_folder, "西安", *QUICK) == (0, "xi 'an\n", "")


def test_json(command, run_folder, expected, tmp_path):
    _, out, _ = command("translate", run_folder, *TEXTS, *QUICK, "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    for row, said in zip(rows, expected(), strict=True):
        assert row == {"source": said.source, "translation": said.text, "score": pytest.approx(said.score, abs=1e-4)}
    look = tmp_path / "a.png"
    _, out, _ = command("translate", run_folder, TEXTS[0], *QUICK, "--json", "--look", look)
    row, (said,) = json.loads(out), expected(TEXTS[:1], looks=True)
    assert row["source_tokens"] == [*TEXTS[0], "<eos>"]
    assert row["target_tokens"] == list(said.target_tokens)
    for got, line in zip(row["weights"], said.weights.tolist(), strict=True):
        assert got == pytest.approx(line, abs=1e-4)


def test_pictures(command, run_folder, tmp_path):
    look = tmp_path / "pictures" / "a.png"
    status, out, err = command("translate", run_folder, "西安", *QUICK, "--look", look)
    assert (status, out.count("\n")) == (0, 1)
    assert look.read_bytes()[1:4] == b"PNG"
    assert err == f"The alignment of sentence 1 is in {look}.\n"
    _, _, err = command("translate", run_folder, "西安", "", "北京", *QUICK, "--look", tmp_path / "b.svg")
    assert sorted(path.name for path in tmp_path.glob("b*")) == ["b-1.svg", "b-3.svg"]
    assert err.splitlines()[1] == "Sentence 2 is empty: no picture."


def test_pages(command, run_folder, tmp_path):
    look = tmp_path / "a.html"
    status, out, err = command("translate", run_folder, "西安", *QUICK, "--look", look)
    assert (status, out.count("\n")) == (0, 1)
    assert err == f"What sentence 1 attends to is in {look}: open it in a browser.\n"
    assert '"labels":["西","安","\\u003ceos\\u003e"]' in look.read_text(encoding="utf-8")
    _, out, err = command(
        "translate", run_folder, "西安", "", "北京", *QUICK, "--sample", "--look", tmp_path / "b.html"
    )
    assert sorted(path.name for path in tmp_path.glob("b*")) == ["b-1.html", "b-3.html"]
    assert err.splitlines()[1] == "Sentence 2 is empty: no picture."
    # what was drawn is what is shown, not what a beam would say
    shown = (tmp_path / "b-1.html").read_text(encoding="utf-8")
    assert f"西安 → {html.escape(out.splitlines()[0])}" in shown


def test_output_is_a_file(command, run_folder, expected, tmp_path):
    file = tmp_path / "out" / "english.txt"
    assert command("translate", run_folder, *TEXTS, *QUICK, "--output", file) == (
        0,
        "",
        f"{len(TEXTS)} lines in {file}\n",
    )
    assert file.read_text().splitlines() == [said.text for said in expected()]
    assert [path.name for path in file.parent.iterdir()] == ["english.txt"]


def test_what_is_unknown_is_said(command, run_folder):
    for texts, which in (
        (["西安", "ψ", "φ"], "2 sentences (the first is sentence 2)"),
        (["西安", "西安", "ψ"], "sentence 3"),
        (["ψ"], "the sentence"),
    ):
        status, out, err = command("translate", run_folder, *texts, *QUICK)
        assert (status, out.count("\n")) == (0, len(texts))
        assert err == f"Parts of {which} are unknown to this run.\n"
    # the same for one that is typed, as soon as it is
    _, _, err = command("translate", run_folder, *QUICK, stdin="西安\nψ\n".encode(), is_typed=True)
    assert err.splitlines()[1:] == ["Parts of the sentence are unknown to this run."]


def test_sentences_that_look_like_options(command, run_folder):
    assert command("translate", run_folder, *QUICK, "--", "--json")[0] == 0


def test_typed_line_by_line(command, run_folder, expected):
    status, out, err = command("translate", run_folder, *QUICK, stdin="西安\n北京\n".encode(), is_typed=True)
    assert (status, err) == (0, "Sentences, one per line; Ctrl-D ends.\n")
    assert out.splitlines() == [said.text for said in expected(["西安", "北京"])]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["西", "--input", "a.txt"], "give sentences or --input, not both"),
        (["西", "--temperature", "2"], "--temperature is for sampling, add --sample"),
        (["西", "--top-k", "2"], "--top-k is for sampling, add --sample"),
        (["西", "--seed", "2"], "--seed is for sampling, add --sample"),
        (["西", "--layer", "1"], "--layer is for pictures, add --look attention.png"),
        (["西", "--layer", "1", "--look", "a.html"], "--layer is for pictures, a page has all layers"),
        (["西", "--output", "."], "--output must be a file, . is a folder"),
        (["西", "--look", "."], "--look must be a file, . is a folder"),
        (["西", "--look", "a.txt"], "a.txt"),
        (["西", "--look", "a.png", "--layer", "1"], "a Seq2Seq looks at its source in one place"),
        (["西", "--device", "gpu"], "device must be auto, cpu or cuda, got 'gpu'."),
        (["西", "--sample", "--temperature", "0"], "sample temperature must be above 0"),
        (["西", "--sample", "--temperature", "nan"], "sample temperature must be above 0"),
        (["西", "--alpha", "nan"], "alpha"),
        (["\udce8"], "sentence 1 is not unicode"),
    ],
)
def test_wrong_options(complaint, run_folder, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in complaint("translate", run_folder, *options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xce\xf7\xb0\xb2\n", "a.txt, line 1 is not UTF-8"),
        (b"\xe8\xa5\xbf\n\0", "a.txt, line 2 has a NUL byte"),
        (b"x" * 1_000_001, "a.txt, line 1 is longer than"),
        ("西安".encode("utf-16"), "is not UTF-8"),
    ],
)
def test_wrong_input(complaint, run_folder, content, message, tmp_path):
    file, out = tmp_path / "a.txt", tmp_path / "out.txt"
    file.write_bytes(content)
    assert message in complaint("translate", run_folder, "--input", file, "--output", out)
    said = complaint("translate", run_folder, "--output", out, stdin=content)
    assert said.startswith("stdin, line ")
    assert not out.exists()


def test_input_that_is_no_file(complaint, run_folder, tmp_path):
    assert "a.txt does not exist" in complaint("translate", run_folder, "--input", tmp_path / "a.txt")
    assert "is a folder" in complaint("translate", run_folder, "--input", tmp_path)
    cut = tmp_path / "a.gz"
    cut.write_bytes(gzip.compress(os.urandom(4000).hex().encode() * 9)[:3000])
    assert "a.gz is damaged" in complaint("translate", run_folder, "--input", cut)


@pytest.mark.parametrize("option", ["--output", "--look"])
def test_a_place_that_cannot_be_written_shows_before_the_work(complaint, run_folder, tmp_path, monkeypatch, option):
    monkeypatch.setattr(Translator, "load", lambda *args: pytest.fail("work was begun"))
    ending = ": see regard translate --help."

    def complain(path) -> str:
        said = complaint("translate", run_folder, "西安", *QUICK, option, path)
        return said.removeprefix("Invalid value: ")

    # a file where a folder should be
    taken, locked = tmp_path / "taken", tmp_path / "locked"
    taken.write_text("mine")
    assert complain(taken / "new" / "a.png") == f"{option} must be in a folder, {taken} is a file{ending}"
    assert taken.read_text() == "mine"
    locked.mkdir()
    # root may write anywhere
    monkeypatch.setattr(os, "access", lambda path, mode: os.fspath(path) != str(locked))
    for place in (locked / "a.png", locked / "new" / "newer" / "a.png"):
        assert complain(place) == f"{option} must be in a folder that can be written, {locked} cannot{ending}"
    assert list(locked.iterdir()) == []
    # to replace a device would be the end of it
    assert complain(os.devnull) == f"{option} must be a file, {os.devnull} is a device or a pipe{ending}"


def test_a_place_that_is_taken_meanwhile(complaint, run_folder, tmp_path, monkeypatch):
    taken, inner = tmp_path / "taken", Translator.translate

    def take(*args, **options):
        taken.write_text("mine")
        return inner(*args, **options)

    monkeypatch.setattr(Translator, "translate", take)
    said = complaint("translate", run_folder, "西安", *QUICK, "--output", taken / "out.txt")
    assert said.startswith(f"{taken / 'out.txt'} cannot be used (")
    assert taken.read_text() == "mine"


def test_a_full_disk_leaves_the_old_file(complaint, run_folder, tmp_path, monkeypatch):
    file = tmp_path / "out.txt"
    file.write_text("old")

    def fill(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fill)
    said = complaint("translate", run_folder, "西安", *QUICK, "--output", file, "--force")
    assert said.startswith(f"{file} cannot be used (No space left on device): ")
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def damage(path, how):
    if how is None:
        path.unlink()
    elif callable(how):
        path.write_bytes(how(path.read_bytes()))
    else:
        path.write_bytes(how)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("config.json", None),
        ("config.json", b""),
        ("config.json", b"<html>404</html>"),
        ("config.json", b"[]"),
        ("config.json", lambda raw: raw.replace(b'"num_hiddens": 10', b'"num_hiddens": -10')),
        ("config.json", lambda raw: raw.replace(b'"num_hiddens": 10', b'"num_hiddens": "ten"')),
        ("config.json", lambda raw: raw.replace(b'"num_hiddens"', b'"num_hidden"')),
        ("config.json", lambda raw: raw.replace(b'"additive"', b'"subtractive"')),
        ("model.safetensors", None),
        ("model.safetensors", b""),
        ("model.safetensors", lambda raw: raw[:-9]),
        ("model.safetensors", b"\x80\x04cos\nsystem\n(S'touch canary'\ntR."),
        ("tokenizer.json", None),
        ("tokenizer.json", b""),
        ("tokenizer.json", b"<html>404</html>"),
        ("tokenizer.json", lambda raw: raw.decode().encode("utf-16")),
        ("tokenizer.json", lambda raw: raw.replace(b"<eos>", b"<end>")),
        ("target_tokenizer.json", b"{}"),
        ("target_tokenizer.json", lambda raw: raw[:-100]),
    ],
)
def test_a_broken_run(complaint, run_folder, name, how, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(run_folder, "broken")
    damage(tmp_path / "broken" / name, how)
    said = complaint("translate", "broken", "西安", "--output", "out.txt", "--look", "a.png")
    assert os.path.join("broken", name) in said
    assert len(said) <= 200
    assert [path.name for path in tmp_path.iterdir()] == ["broken"]


def test_a_run_that_is_not_there(complaint, tmp_path):
    assert "nowhere" in complaint("translate", tmp_path / "nowhere", "西安")
    (tmp_path / "file").write_text("x")
    assert "file" in complaint("translate", tmp_path / "file", "西安")


def test_a_bar_is_shown_on_a_terminal(command, run_folder, monkeypatch):
    from regard.cli.options import files

    shown = []
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    real = files.show_progress

    def spy(title, total):
        shown.append(total)
        return real(title, total)

    monkeypatch.setattr("regard.cli.ask.answers.show_progress", spy)
    status, out, err = command("translate", run_folder, *["西安"] * 70, *QUICK)
    assert (status, out.count("\n"), shown) == (0, 70, [70])
    assert "translating" in err
