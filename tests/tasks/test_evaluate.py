"""Scores are sacreBLEU's own, by its command line and by hand."""

import json
import math
import subprocess
import sys

import pytest

from regard.core import RegardError
from regard.data.scripts import is_unspaced
from regard.extras import install
from regard.tasks.metrics.translation import choose_cut, score
from regard.tasks.text.translator_scores import evaluate
from tests.cli.small import PAIRS, build

SAID = ["the cat sat on the mat .", "How is the weather in Xi'an", "i want noodles", "please wait here"]
MEANT = ["the cat sat on a mat .", "how is the weather in xi'an", "we want to eat noodles", "please wait here"]


@pytest.mark.parametrize(("lowercase", "tokenize"), [(False, "13a"), (True, "intl"), (True, "none"), (False, "char")])
def test_scores_are_those_of_the_command_line(lowercase, tokenize, tmp_path):
    for name, lines in (("said", SAID), ("meant", MEANT)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "sacrebleu", "meant", "-i", "said", "-m", "bleu", "chrf", "-w", "6", "--force"]
    command += ["-tok", tokenize, *(["-lc", "--chrf-lowercase"] if lowercase else [])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    bleu, chrf = json.loads(done.stdout)
    found = score(SAID, MEANT, lowercase=lowercase, tokenize=tokenize)
    assert found.bleu == pytest.approx(bleu["score"], abs=1e-5)
    assert found.chrf == pytest.approx(chrf["score"], abs=1e-5)
    for text, row in ((found.bleu_signature, bleu), (found.chrf_signature, chrf)):
        # ours is the whole line, theirs comes with its name before and in pieces
        assert set(text.split("|")) <= set(row["signature"].split("|"))
        assert f"version:{row['version']}" in text
    assert (found.exact, found.count) == (2 if lowercase else 1, 4)


def test_bleu_by_hand():
    # of 6 words 5 are right, of 5 pairs 3, of 4 triples 2, of 3 quadruples 1; as long as the reference
    found = score(["the cat sat on the mat"], ["the cat sat on a mat"], tokenize="none")
    assert found.bleu == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25, abs=1e-6)
    # a word short: exp(1 - 6/5)
    found = score(["the cat sat on a"], ["the cat sat on a mat"], tokenize="none")
    assert found.bleu == pytest.approx(100 * math.exp(-0.2), abs=1e-6)


def test_chinese_is_cut_by_characters():
    assert score(["介绍西安吧"], ["介绍西安"], tokenize="zh").bleu == pytest.approx(
        100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    )
    assert "tok:zh" in score(["西安"], ["西安"], tokenize="zh").bleu_signature


def test_a_translator_is_evaluated():
    translator = build(ends=0.5)
    scores, found = evaluate(translator, iter(PAIRS[:7]), beam=1, batch_size=3, max_len=6)
    assert [said.source for said in found] == [source for source, _ in PAIRS[:7]]
    assert scores == score([said.text for said in found], [target for _, target in PAIRS[:7]])
    # what it says is the reference: all right
    mine = [(said.source, said.text) for said in found]
    scores, _ = evaluate(translator, mine, beam=1, max_len=6, tokenize="none")
    assert (scores.exact, scores.count) == (7, 7)
    assert scores.chrf == pytest.approx(100)


def test_references_are_joined_as_answers_are():
    translator = build(ends=0.5)
    (said,) = translator.translate(["介绍一下西安"], beam=1, max_len=6)
    translator.joiner = "@@ "
    cut = f"{said.text[:2]}@@ {said.text[2:]}"
    scores, _ = evaluate(translator, [("介绍一下西安", cut)], beam=1, max_len=6)
    assert scores.exact == 1


def test_complaints(monkeypatch):
    with pytest.raises(RegardError, match=r"^hypotheses and references must be as many, got 1 and 2: one for each\.$"):
        score(["a"], ["a", "b"])
    with pytest.raises(RegardError, match=r"^hypotheses must hold at least one sentence to be scored, got none\.$"):
        score([], [])
    # this one would be fetched
    with pytest.raises(RegardError, match=r"^tokenize must be one of 13a, intl, zh, char, none, got 'flores200'\.$"):
        score(["a"], ["a"], tokenize="flores200")
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(RegardError) as error:
        score(["a"], ["a"])
    assert str(error.value) == f"scores need the package sacrebleu: {install('train')}."


@pytest.mark.parametrize(
    ("meant", "near", "cut"),
    [
        ("the cat sat on the mat.", "the cat sat on a mat.", "13a"),
        ("我们昨天在西安吃了面条。", "我们今天在西安吃了面条。", "zh"),
        ("わたしはきのうラーメンをたべました。", "わたしはきょうラーメンをたべました。", "char"),
        ("東京の図書館で日本語を勉強しました。", "京都の図書館で日本語を勉強しました。", "char"),
        ("ฉันกินก๋วยเตี๋ยวเมื่อวานนี้", "ฉันกินก๋วยเตี๋ยวเมื่อเช้านี้", "char"),
    ],
)
def test_the_cut_by_the_script(meant, near, cut):
    assert choose_cut([meant], None) == cut
    assert is_unspaced([meant]) == (cut != "13a")
    # it sees what is nearly right
    assert 30 < score([near], [meant], tokenize=cut).bleu < 95
    # text that came cut is left as it is
    assert choose_cut([meant], "@@ ") == "none"
    assert choose_cut([], None) == choose_cut([""], None) == "13a"
