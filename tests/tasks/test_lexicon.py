"""How texts and sentences of words are read: by hand, and by tokenizers that know nothing of models."""

from __future__ import annotations

import random

import pytest

from regard import RegardError
from regard.data import BOS, EOS, PAD, UNK, Tokenizer, train_tokenizer
from regard.data.wordpiece import SPECIAL, WordPiece
from regard.tasks.reading.documents import read_documents
from regard.tasks.reading.vocabulary import FIRST_LETTERS, LAST_LETTERS, Encoded, Lexicon

pytest.importorskip("tokenizers")

SENTENCES = [["the", "cat", "sat"], ["The", "mat", "in", "New York"]]
VOCAB = {token: number for number, token in enumerate([*SPECIAL, "look", "##ing", "there", "!"])}


@pytest.fixture(scope="module")
def lexicon():
    return Lexicon.train(SENTENCES, "spaces", has_letters=True)


@pytest.fixture(scope="module")
def pieces():
    return Lexicon(WordPiece.from_vocab(VOCAB))


def spell(lexicon, word):
    """The letters of a word one by one, between marks."""
    known = lexicon.letters
    return [BOS, *(known.encode(letter)[0] for letter in word), EOS]


def test_words_are_ids_and_letters(lexicon):
    assert lexicon.tokenizer.vocab_size == 4 + 8
    (found,) = lexicon.encode_words([["cat", "dog", "the", "cat"]])
    (cat,), (the,) = (lexicon.tokenizer.encode(word) for word in ("cat", "the"))
    assert found.ids == [cat, UNK, the, cat]
    assert len({cat, the, UNK}) == 3
    assert found.letters == [spell(lexicon, word) for word in ("cat", "dog", "the", "cat")]
    # "d" and "g" were never met, "o" was
    assert [number == UNK for number in found.letters[1]] == [False, True, False, True, False]
    assert (found.starts, found.num_left_out) == ([0, 1, 2, 3], 0)


def test_a_word_is_read_as_it_was_whatever_stands_around_it(lexicon):
    chance = random.Random(0)
    words = ["the", "cat", "New York", "new", "", "x" * 40, "<pad>", "mat"]
    sentences = [chance.choices(words, k=chance.randrange(5)) for _ in range(30)]
    for sentence, found in zip(sentences, lexicon.encode_words(sentences), strict=True):
        alone = [Lexicon(lexicon.tokenizer, lexicon.letters).encode_words([[word]])[0] for word in sentence]
        assert found.ids == ([one.ids[0] for one in alone] or [UNK])
        assert found.letters == ([one.letters[0] for one in alone] or [[]])
        assert found.starts == [*range(len(sentence))]


def test_a_word_with_a_space_in_it_is_unknown_and_spelled(lexicon):
    (found,) = lexicon.encode_words([["New York", "New", "<bos>"]])
    # each of its halves is known
    assert found.ids == [UNK, lexicon.tokenizer.encode("New")[0], UNK]
    assert found.letters[0] == spell(lexicon, "New York")


@pytest.mark.parametrize("length", [1, 23, 24, 25, 100])
def test_long_words_are_cut_in_the_middle(length):
    letters = "abcdefghijklmnopqrstuvwxyz"
    lexicon = Lexicon.train([[letters]], "spaces", has_letters=True)
    word = (letters * 4)[:length]
    (found,) = lexicon.encode_words([[word]])
    short = word if length <= 24 else word[:FIRST_LETTERS] + word[-LAST_LETTERS:]
    assert found.letters == [spell(lexicon, short)]
    assert len(short) == min(length, 24)
    assert PAD not in found.letters[0]


def test_rare_letters_of_much_text_are_unknown():
    few, many = ([["a"]] * count + [["z"]] for count in (3, 1000))
    ids = [
        Lexicon.train(texts, "spaces", has_letters=True).encode_words([["az"]])[0].letters[0] for texts in (few, many)
    ]
    assert [UNK in row for row in ids] == [False, True]


def test_case_is_left_to_the_letters():
    lexicon = Lexicon.train(SENTENCES, "spaces", has_letters=True, lowercase=True)
    (found,) = lexicon.encode_words([["The", "the"]])
    assert found.ids[0] == found.ids[1] != UNK
    assert found.letters[0] != found.letters[1]


def test_texts_are_cut_by_the_tokenizer(lexicon):
    texts = ["the cat in the mat", "dog", "the  cat"]
    for text, found in zip(texts, lexicon.encode_texts(texts), strict=True):
        assert found.ids == lexicon.tokenizer.encode(text)
        spans = lexicon.tokenizer.list_spans(text)
        assert found.letters == [spell(lexicon, text[start:stop].strip()) for start, stop in spans]
        assert (found.starts, found.num_left_out) == (None, 0)
    plain = Lexicon(lexicon.tokenizer)
    assert plain.encode_texts(texts)[0] == Encoded(lexicon.tokenizer.encode(texts[0]))


def test_texts_are_read_once(lexicon, monkeypatch):
    read = []

    def count(plain):
        def call(self, texts):
            texts = list(texts)
            read.extend(texts)
            return plain(self, texts)

        return call

    fresh, texts = Lexicon(lexicon.tokenizer, lexicon.letters), ["the cat in the mat", "dog"]
    for name in ("encode_all", "encode_spans"):
        monkeypatch.setattr(Tokenizer, name, count(getattr(Tokenizer, name)))
    monkeypatch.setattr(Tokenizer, "list_spans", None)
    found = fresh.cut_texts(texts)
    # and the letters of each word once
    assert read == [*texts, "the", "cat", "in", "mat", "dog"]
    assert found == lexicon.encode_texts(texts)
    read.clear()
    assert len(read_documents(fresh, [texts], 2).ids) == 3
    assert read == texts


@pytest.mark.parametrize("is_framed", [False, True])
@pytest.mark.parametrize("has_letters", [False, True])
def test_no_more_than_the_limit_is_read(is_framed, has_letters):
    lexicon = Lexicon.train(["a b c d e"], "words", has_letters=has_letters, is_framed=is_framed)
    whole, _ = lexicon.encode_texts(["a b c d e", ""])
    assert whole.ids == [BOS] * is_framed + lexicon.tokenizer.encode("a b c d e")
    for limit in (2, 5, 6, 7):
        found, empty = lexicon.encode_texts(["a b c d e", ""], limit)
        assert found.ids == whole.ids[:limit]
        assert found.letters == (whole.letters[:limit] if has_letters else None)
        assert found.num_left_out == max(0, len(whole.ids) - limit)
        assert (empty.ids, empty.letters, empty.num_left_out) == (
            [BOS if is_framed else UNK], [[]] if has_letters else None, 0,
        )  # fmt: skip


@pytest.mark.parametrize("is_framed", [False, True])
def test_a_frame_moves_the_starts_of_words(is_framed):
    lexicon = Lexicon.train(SENTENCES, "spaces", has_letters=True, is_framed=is_framed)
    found, empty = lexicon.encode_words([["the", "cat"], []])
    assert found.ids == [BOS] * is_framed + lexicon.tokenizer.encode("the cat")
    assert found.starts == [is_framed, is_framed + 1]
    assert found.letters == [[]] * is_framed + [spell(lexicon, "the"), spell(lexicon, "cat")]
    # even of nothing there is something to read
    assert empty == Encoded([BOS if is_framed else UNK], [[]], [])


def test_word_pieces_are_found_by_their_first(pieces):
    words = ["Looking", "there", "zz", "!looking", " "]
    found, empty = pieces.encode_words([words, []])
    tokens = ["[CLS]", "look", "##ing", "there", "[UNK]", "!", "look", "##ing", "[UNK]", "[SEP]"]
    assert found == Encoded([VOCAB[token] for token in tokens], None, [1, 3, 4, 5, 8])
    assert empty == Encoded([VOCAB["[CLS]"], VOCAB["[SEP]"]], None, [])
    (text,) = pieces.encode_texts(["looking there!"], 4)
    assert pieces.tokenizer.list_tokens(text.ids) == ["[CLS]", "look", "##ing", "[SEP]"]
    assert text.num_left_out == 2


def test_bytes_merged_are_found_by_their_first():
    lexicon = Lexicon.train(["the cat the cat"], "bpe", vocab_size=263)
    words = ["the", "zoo", "cat"]
    (found,) = lexicon.encode_words([words])
    alone = [lexicon.tokenizer.encode(word) for word in words]
    assert found.ids == [number for ids in alone for number in ids]
    assert found.starts == [0, len(alone[0]), len(alone[0]) + len(alone[1])]
    assert len(alone[1]) > 1


def test_mask_is_a_row_of_its_own(lexicon, pieces):
    size = lexicon.tokenizer.vocab_size
    assert (lexicon.vocab_size, lexicon.mask_id, lexicon.pad_id, lexicon.unk_id) == (size + 1, size, PAD, UNK)
    assert lexicon.special == {PAD, BOS, EOS, UNK, size}
    assert lexicon.num_characters == lexicon.letters.vocab_size
    # no text is read as one
    words = ["<mask>", "<pad>", "[MASK]"]
    assert size not in lexicon.encode_words([words])[0].ids
    assert (pieces.vocab_size, pieces.num_characters) == (len(VOCAB), 0)
    assert (pieces.mask_id, pieces.pad_id, pieces.unk_id) == (VOCAB["[MASK]"], VOCAB["[PAD]"], VOCAB["[UNK]"])
    assert pieces.special == {VOCAB[token] for token in SPECIAL} - {VOCAB["[UNK]"]}
    assert not {VOCAB["[MASK]"], VOCAB["[PAD]"]} & {*pieces.encode_words([words])[0].ids}


def test_it_comes_back(lexicon, pieces, tmp_path):
    asked = [["the", "New York", "looking", "x" * 30], []]
    lexicon.save(tmp_path)
    again = Lexicon.load(tmp_path, has_letters=True, is_framed=True)
    assert again.is_framed
    again.is_framed = False
    assert again.encode_words(asked) == lexicon.encode_words(asked)
    assert (again.vocab_size, again.num_characters) == (lexicon.vocab_size, lexicon.num_characters)
    # letters of another start are not left for this one
    pieces.save(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["tokenizer.json"]
    assert Lexicon.load(tmp_path, has_letters=False).encode_words(asked) == pieces.encode_words(asked)
    with pytest.raises(RegardError, match=r"letters\.json cannot be read"):
        Lexicon.load(tmp_path, has_letters=True)


@pytest.mark.parametrize("kind", ["bpe", "characters"])
def test_letters_are_for_words(kind):
    with pytest.raises(RegardError) as error:
        Lexicon.train(["a b"], kind, has_letters=True)
    assert str(error.value) == f"letters are for tokens that are words: take tokens words or spaces, not '{kind}'."
    # and are not asked for by themselves
    assert Lexicon.train(["a b"], kind).letters is None


def test_it_is_made_as_its_tokenizer_is():
    made = Lexicon.train([["b", "a"], ["b"]], "spaces", min_count=2, form="NFKC").tokenizer
    assert made.vocab_size == train_tokenizer(["b a", "b"], "spaces", min_count=2, form="NFKC").vocab_size == 5
