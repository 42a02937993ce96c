"""A trained tagger: how it cuts texts, and what it says of each word, against its model asked word by word."""

from __future__ import annotations

import pytest
import torch

from regard import RegardError
from regard.models.encoder import Encoder
from regard.tasks.reading.vocabulary import Lexicon
from regard.tasks.text.tag import TagJob
from regard.tasks.text.tagger import LONGEST, Tagged, Tagger
from tests.tasks.reading import TAGGED, TAGS, build, make, read_pieces, save

pytest.importorskip("tokenizers")

SENTENCES = [["the", "cat", "sat", "."], [], ["zz"], ["The", "looking", "cat", "zz", "cats", "the"], ["New York"]]


@pytest.fixture(scope="module")
def tagger():
    return Tagger(*build(make(TagJob)))


@pytest.fixture(scope="module")
def chinese():
    # 北京大学 is never met, its parts are
    words = [
        ("我", "在", "北京", "大学", "学习"),
        ("中华人民共和国", "大", "学"),
        ("a" * 12, "b" * 13),
        ("一" * 12, "二" * 13),
    ]
    return Lexicon.train(words, "spaces", has_letters=True)


@pytest.mark.parametrize("is_framed", [False, True])
def test_tags_are_the_models_word_by_word(is_framed):
    model, lexicon = build(make(TagJob, pooling="first" if is_framed else "soft"))
    tagger = Tagger(model, lexicon)
    found = tagger.tag(SENTENCES, batch_size=2)
    assert [one.words for one in found] == [tuple(words) for words in SENTENCES]
    for words, one in zip(SENTENCES, found, strict=True):
        (encoded,) = lexicon.encode_words([words])
        width = max(map(len, encoded.letters)) or 1
        spelling = torch.tensor([[row + [0] * (width - len(row)) for row in encoded.letters]])
        with torch.no_grad():
            logits = model(torch.tensor([encoded.ids]), spelling=spelling)[0][is_framed:]
        rows = logits.softmax(-1).tolist()[: len(words)]
        assert one.tags == tuple(TAGS[row.index(max(row))] for row in rows)
        assert one.scores == pytest.approx([max(row) for row in rows], abs=1e-5)
        assert one.unknown == sum(word in ("zz", "New York") for word in words)
    assert len({tag for one in found for tag in one.tags}) > 1
    assert found[1] == Tagged((), (), (), 0)


def test_words_of_several_pieces_have_one_tag():
    lexicon = read_pieces()
    torch.manual_seed(0)
    model = make(TagJob).build(lexicon, TAGS).eval()
    words = ["looking", "cats", "zz", "there"]
    (found,) = Tagger(model, lexicon).tag([words])
    (encoded,) = lexicon.encode_words([words])
    with torch.no_grad():
        logits = model(torch.tensor([encoded.ids]))[0]
    assert found.tags == tuple(TAGS[int(logits[place].argmax())] for place in (1, 3, 5, 6))
    assert found.unknown == 1


def test_order_and_neighbours_do_not_matter(tagger):
    alone = [tagger.tag([words])[0] for words in SENTENCES]
    for batch_size in (1, 3, 64):
        seen = []
        found = tagger.tag(SENTENCES[::-1], batch_size=batch_size, on_progress=lambda *args, x=seen: x.append(args))
        assert [(one.words, one.tags) for one in found] == [(one.words, one.tags) for one in alone[::-1]]
        assert seen[-1] == (5, 5)
        for one, other in zip(found, alone[::-1], strict=True):
            assert one.scores == pytest.approx(other.scores, abs=1e-5)
    assert tagger.tag([]) == []


def test_a_text_is_cut_as_treebanks_are(tagger):
    text = "The cat isn't looking, it's there!"
    words = ["The", "cat", "is", "n't", "looking", ",", "it", "'s", "there", "!"]
    assert tagger.cut(text) == words
    (cut, given) = tagger.tag([text, words])
    assert (cut.words, cut.tags) == (given.words, given.tags)
    assert [one.words for one in tagger.tag(["", " \n", " the\tcat\n"])] == [(), (), ("the", "cat")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("我在北京大学学习", "我 在 北京 大学 学习"),
        # the longest, not the first that fits
        ("大学习", "大学 习"),
        ("中华人民共和国大学", "中华人民共和国 大学"),
        # unknown letters are words
        ("我爱北京。", "我 爱 北京 。"),
        # what is marked stays marked
        ("北 京我在", "北 京 我 在"),
        ("  \t我\n", "我"),
    ],
)
def test_unspaced_text_is_cut_into_the_longest_known_words(chinese, text, words):
    tagger = Tagger(make(TagJob).build(chinese, TAGS).eval(), chinese)
    assert tagger.cut(text) == words.split()
    assert tagger.tag([text])[0].words == tuple(words.split())


def test_no_word_is_longer_than_any(chinese):
    tagger = Tagger(make(TagJob).build(chinese, TAGS).eval(), chinese)
    assert LONGEST == 12
    assert tagger.cut("我" + "一" * 12) == ["我", "一" * 12]
    assert tagger.cut("我" + "二" * 13) == ["我", *"二" * 13]


def test_words_with_spaces_stay_whole_among_those_without(chinese):
    tagger = Tagger(make(TagJob).build(chinese, TAGS).eval(), chinese)
    assert tagger.cut("我在北京用Python 3.11学习,很开心") == [
        *"我在",
        "北京",
        "用",
        "Python",
        "3.11",
        "学习",
        *",很开心",
    ]
    # few of them are cut as many are
    assert tagger.cut("They don't study at 北京大学 these days") == (
        ["They", "do", "n't", "study", "at", "北京", "大学", "these", "days"]
    )  # fmt: skip


def test_what_is_no_word_is_not_kept_in_mind(chinese):
    tagger = Tagger(make(TagJob).build(chinese, TAGS).eval(), chinese)
    tagger.cut("我在北京大学学习")
    before = len(chinese._known)
    tagger.cut("甲乙丙丁戊己庚辛壬癸子丑寅卯")
    assert len(chinese._known) == before


@pytest.mark.parametrize("max_len", [3, 4])
def test_long_sentences_are_read_in_parts(max_len):
    tagger = Tagger(*build(make(TagJob, position="learned", max_len=max_len)))
    words = [*TAGGED[3][0], *TAGGED[0][0]]
    found = tagger.tag([words, [], TAGGED[4][0]])
    parts = tagger.tag([words[start : start + max_len] for start in range(0, len(words), max_len)])
    assert [one.words for one in found] == [tuple(words), (), TAGGED[4][0]]
    assert found[0].tags == tuple(tag for one in parts for tag in one.tags)
    assert found[0].scores == pytest.approx([x for one in parts for x in one.scores], abs=1e-5)


def test_unspaced_text_of_word_pieces_is_cut_into_letters():
    lexicon = read_pieces()
    tagger = Tagger(make(TagJob).build(lexicon, TAGS).eval(), lexicon)
    assert tagger.cut("我爱你们look吧cats呀啊啊") == [*"我爱你们", "look", "吧", "cats", *"呀啊啊"]


def test_a_folder_brings_it_back(tagger, tmp_path):
    save(make(TagJob), tmp_path)
    again = Tagger.load(tmp_path, "cpu")
    assert type(again.model) is Encoder
    assert not again.model.training
    assert again.tag(SENTENCES) == tagger.tag(SENTENCES)
    assert again.tag([words for words, _ in TAGGED])[0].words == TAGGED[0][0]


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        ("the cat", "sentences must be a sequence of them, got one str: put it in a list."),
        ([["the", 3]], "texts must be str, text 1 is a int."),
        ([["the", "\udce8"]], "texts must be unicode, text 1 has half a surrogate pair: read it as UTF-8."),
    ],
)
def test_what_is_no_sentence(sentences, message):
    # a tagger that has read nothing yet
    with pytest.raises(RegardError) as error:
        Tagger(*build(make(TagJob))).tag(sentences)
    assert str(error.value) == message
