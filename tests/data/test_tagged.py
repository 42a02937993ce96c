"""Readers of tagged sentences: what they give, and what they say about files that are wrong."""

import gzip
import pathlib
import zipfile
from collections import Counter

import pytest

from regard.core import RegardError
from regard.data import read_tagged
from regard.data.tagged import MOST_WORDS, NAMES, Tagged

CONLLU = """# sent_id = 1
# text = Vámonos al mar.
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\tir\tVERB\tVB\t_\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\tPRP\t_\t1\tobj\t_\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_
3\ta\ta\tADP\tIN\t_\t5\tcase\t_\t_
4\tel\tel\tDET\tDT\t_\t5\tdet\t_\t_
5\tmar\tmar\tNOUN\tNN\t_\t1\tobl\t_\tSpaceAfter=No
6\t.\t.\tPUNCT\t.\t_\t1\tpunct\t_\t_

# sent_id = 2
1\tNew York\tNew York\tPROPN\tNNP\t_\t0\troot\t_\t_
2\t#\t#\tSYM\t#\t_\t1\tdep\t_\t_
2.1\tsees\tsee\tVERB\tVB\t_\t_\t_\t1:dep\t_"""
SENTENCES = [
    (("Vamos", "nos", "a", "el", "mar", "."), ("VERB", "PRON", "ADP", "DET", "NOUN", "PUNCT")),
    (("New York", "#"), ("PROPN", "SYM")),
]


def write(path: pathlib.Path, text: str) -> pathlib.Path:
    raw = text.encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\n\n\n# the end\n"])
@pytest.mark.parametrize("name", ["a.conllu", "a.conll", "A.CONLLU", "a.conllu.gz"])
def test_conllu(tmp_path, name, end):
    tagged = read_tagged(write(tmp_path / name, CONLLU + end))
    # twice: a walk starts anew
    assert list(tagged) == list(tagged) == SENTENCES


@pytest.mark.parametrize(("column", "tag"), [*zip(NAMES, ["1", "New York", "New York", "PROPN", "NNP"], strict=False)])
def test_a_column_has_a_name_and_a_number(tmp_path, column, tag):
    file = write(tmp_path / "a.conllu", CONLLU)
    by_name, by_number = (list(read_tagged(file, column=x)) for x in (column, NAMES.index(column)))
    assert by_name == by_number
    assert by_name[1][1][0] == tag
    # the words are the same whatever is asked of them
    assert [words for words, _ in by_name] == [words for words, _ in SENTENCES]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I\tPRON\nsee\tVERB\n", ["I", "see"]),
        ("I PRON\nsee    VERB", ["I", "see"]),
        ("\n\nI PRON\r\nYork  PROPN\r\n \r\n", ["I", "York"]),
        ("-DOCSTART- -X- O O\n\nI PRON\n", ["I"]),
        ("new\x0b\u00a0 york\tPROPN\n", ["new york"]),
        ("New York\tPROPN\n#\tSYM\n", ["New York", "#"]),
        ("cafe\u0301\tNOUN\n", ["café"]),
        ("\ufeff_ SYM\n", ["_"]),
    ],
)
def test_two_columns(tmp_path, text, words):
    for name in ("a.txt", "a.tsv.gz"):
        ((found, tags),) = read_tagged(write(tmp_path / name, text))
        assert list(found) == words
        assert len(tags) == len(words)
        assert " " not in "".join(tags)


def test_a_member_of_a_zip(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("ud/a.conllu", CONLLU)
        archive.writestr("ud/README.md", "free")
    assert list(read_tagged(tmp_path / "a.zip")) == SENTENCES


LINE = "1\ta\ta\tX\tX\t_\t0\troot\t_\t_\n"
MESSAGES = {
    "{}/a.conllu has no tagged sentences: name a file that has some.": ("a.conllu", "# nothing\n\n", {}),
    "{}/a.csv must end in .conllu, .conll, .tsv, .txt or .tab (then .gz), or .zip: save it as one of these.": (
        "a.csv",
        "",
        {},
    ),
    "{}/a.conllu, line 2 has no tag: mend the line, or name another column.": (
        "a.conllu",
        LINE + LINE.replace("X", "_"),
        {},
    ),
    "{}/a.conllu, line 1 has no tag: mend the line, or name another column.": ("a.conllu", LINE, {"column": "feats"}),
    "{}/a.txt, line 1 has no word: mend the line, or name another column.": ("a.txt", "\tNOUN\n", {}),
    "{}/a.txt, line 2 must have 2 columns, a word and its tag, has 1: mend the line, or end the file's name in"
    " .conllu.": ("a.txt", "a X\nb\n", {}),
    "{}/a.txt, line 1 must have 2 columns, a word and its tag, has 4: mend the line, or end the file's name in"
    " .conllu.": ("a.txt", "EU NNP I-NP I-ORG\n", {}),
    "{}/a.tsv, line 1 must have 2 columns, a word and its tag, has 10: mend the line, or end the file's name in"
    " .conllu.": ("a.tsv", LINE, {}),
    "{}/a.conllu, line 2 must have 10 columns between tabs, has 1: mend the line, or end the file's name in .txt where"
    " it is a word and its tag.": ("a.conllu", LINE + "a X\n", {}),
    "{}/a.conllu, line 1 must begin with a word's number, not 'a': mend it.": ("a.conllu", LINE.replace("1", "a"), {}),
    "{}/a.txt has two columns, a word and its tag: leave column='xpos' out.": ("a.txt", "a X", {"column": "xpos"}),
    "column must be one of id, form, lemma, upos, xpos, feats, head, deprel, deps, misc or 0 to 9, got 'pos'.": (
        "a.conllu",
        LINE,
        {"column": "pos"},
    ),
    "column must be one of id, form, lemma, upos, xpos, feats, head, deprel, deps, misc or 0 to 9, got '10'.": (
        "a.conllu",
        LINE,
        {"column": 10},
    ),
    "{}/a.txt, line 10001: a sentence has more than 10,000 words: put a blank line behind each.": (
        "a.txt",
        "a X\n" * (MOST_WORDS + 1),
        {},
    ),
}


@pytest.mark.parametrize("message", MESSAGES)
def test_the_message_is_pinned(tmp_path, message):
    name, text, options = MESSAGES[message]
    file = write(tmp_path / name, text)
    with pytest.raises(RegardError) as error:
        list(read_tagged(file, **options))
    assert str(error.value) == message.replace("{}", str(tmp_path))
    assert len(message) <= 200


def test_it_says_what_it_reads():
    assert repr(Tagged(lambda: iter([]), name="a.conllu")) == "Tagged(a.conllu)"


@pytest.mark.parametrize(
    ("file", "sentences", "words", "tags"),
    [
        ("ud_english_ewt/en_ewt-ud-dev.conllu.gz", 2001, 25_147, 17),
        ("ud_english_ewt/en_ewt-ud-test.conllu.gz", 2077, 25_094, 17),
        ("ud_chinese_gsd/zh-ud-test.conllu.gz", 500, 12_012, 15),
    ],
)
def test_treebanks(data, file, sentences, words, tags):
    found = list(read_tagged(data / file))
    counts = Counter(tag for _, row in found for tag in row)
    assert (len(found), counts.total(), len(counts)) == (sentences, words, tags)
    assert all(len(a) == len(b) for a, b in found)
