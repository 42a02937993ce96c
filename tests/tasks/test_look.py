"""What a run attends to: weights, labels, and what is refused."""

import os

import pytest
import torch

from regard.core import RegardError
from regard.tasks.looks.best_head import find_best_head
from regard.tasks.looks.look import look_at
from regard.tasks.looks.of_translator import look_at_translation
from regard.tasks.looks.sight import Sight
from regard.tasks.looks.token_labels import Speaker, label_said
from regard.tasks.text.translator import Translator
from tests.cli.small import build

TEXT = "介绍一下西安"


@pytest.fixture(scope="module")
def translator():
    return build(ends=0.5)


@pytest.fixture(scope="module")
def transformer():
    return build("transformer")


def test_a_seq2seq_shows_its_own_weights(translator):
    for said in translator.translate([TEXT, "西安"], beam=3, max_len=7, looks=True):
        sight = look_at_translation(translator, said)
        assert list(sight.seen) == ["decoder"]
        assert sight.sides == {"decoder": ("target", "source")}
        torch.testing.assert_close(sight.seen["decoder"].map[0], said.weights, atol=1e-6, rtol=0)
        assert sight.tokens["source"].labels == (*said.source, "<eos>")
        assert sight.seen.checks["decoder"].holds
        assert sight.said == said.text


@pytest.mark.parametrize("layer", [0, 1])
def test_a_transformer_shows_its_own_weights(transformer, layer):
    (said,) = transformer.translate([TEXT], beam=2, max_len=9, looks=True, layer=layer)
    sight = look_at_translation(transformer, said)
    assert sight.sides == {
        "encoder.0.attention": ("source", "source"),
        "decoder.0.attention1": ("target", "inputs"),
        "decoder.0.attention2": ("target", "source"),
        "decoder.1.attention1": ("target", "inputs"),
        "decoder.1.attention2": ("target", "source"),
    }
    shown = sight.seen[f"decoder.{layer}.attention2"].map[0].mean(0)
    torch.testing.assert_close(shown, said.weights, atol=1e-6, rtol=0)
    # what was produced, and what was there before it: row i is of the step that produced token i
    target, inputs = (sight.tokens[side].labels for side in ("target", "inputs"))
    assert inputs == ("<bos>", *target[:-1])
    assert len(target) == len(said.target_ids) == sight.seen["decoder.0.attention1"].entropy.shape[-1]
    # nothing to come is attended to
    assert sight.seen["decoder.0.attention1"].map[0].triu(1).abs().max() == 0


def test_the_models_own_words_and_those_it_is_given(transformer):
    (said,) = transformer.translate([TEXT], beam=1, max_len=9)
    given = look_at_translation(transformer, TEXT, target="introduce xi'an, please")
    assert given.tokens["target"].text == "introduce xi'an, please"
    assert given.tokens["target"].joined
    assert given.tokens["target"].labels[-1] == "<eos>"
    assert given.title == f"{TEXT} → introduce xi'an, please"
    # the same words by their text are the same sight
    again = look_at_translation(transformer, TEXT, target=said.text)
    if again.tokens["target"].labels == look_at_translation(transformer, said).tokens["target"].labels:
        first = look_at_translation(transformer, said).seen["decoder.1.attention2"].map
        assert torch.equal(again.seen["decoder.1.attention2"].map, first)


def test_a_long_text_has_a_short_title(translator):
    sight = look_at_translation(translator, "西安\n" * 90, target="xi'an")
    assert sight.title == ("西安 " * 90)[:119] + "… → xi'an"


def test_chosen_layers(transformer):
    for layers, name in (["encoder.*"], "encoder.0.attention"), ([-1], "decoder.1.attention2"):
        assert list(look_at_translation(transformer, TEXT, target="xi'an", layers=layers).seen) == [name]
    with pytest.raises(RegardError, match=r"no attention is called 'head'; there are encoder\.0\.attention"):
        look_at_translation(transformer, TEXT, target="xi'an", layers=["head"])


def test_the_model_is_as_it_was(translator):
    translator.model.train()
    try:
        first = look_at_translation(translator, TEXT, target="xi'an").seen["decoder"].map
        assert translator.model.training
    finally:
        translator.model.eval()
    assert torch.equal(first, look_at_translation(translator, TEXT, target="xi'an").seen["decoder"].map)


def test_what_is_unknown_and_spaces_around(translator):
    sight = look_at_translation(translator, "  西ψ\n安 ", target="xi'an")
    assert sight.tokens["source"].text == "西ψ 安"
    assert sight.notes == ("Parts of the text are unknown to this run.",)


@pytest.mark.parametrize("kind", ["bpe", "words"])
def test_labels_of_what_was_said_join_to_its_text(kind):
    from regard.data import EOS, train_tokenizer

    texts = ["the café is in 西安, please", "naïve 北京 🙂"]
    tokenizer = train_tokenizer(texts, kind=kind, vocab_size=264)
    for text in texts:
        ids = [*tokenizer.encode(text), EOS]
        labels = label_said(ids, Speaker(tokenizer.decode, {EOS: "<eos>"}))
        assert labels.text == tokenizer.decode(ids)
        assert len(labels) == len(ids)
        assert labels.labels[-1] == "<eos>"
        assert labels.special == (*[False] * (len(ids) - 1), True)
    if kind == "bpe":
        # a smile is four bytes: one token has it, the others are marks
        assert "⟨2/4⟩" in labels.labels or "⟨2/3⟩" in labels.labels


def test_half_a_character_at_the_end():
    labels = label_said([7, 9], Speaker(lambda ids: {(7,): "a", (7, 9): "a\ufffd", (): ""}[tuple(ids)], {}))
    assert labels.text == "a"
    assert labels.marks == (False, True)


def test_the_most_telling_head(transformer):
    sight = look_at_translation(transformer, TEXT, target="xi'an please")
    name, head = find_best_head(sight)
    assert sight.sides[name] == ("target", "source")
    entropies = {(n, h): sight.seen[n].entropy[0, h].mean() for n in sight.seen for h in range(3) if "attention2" in n}
    # ten sources at most: what is near is all there is, and the sharpest head with little on the first is the one
    assert entropies[name, head] <= sorted(entropies.values())[2]


def test_pages_and_pictures(transformer, tmp_path):
    sight = look_at_translation(transformer, TEXT, target="xi'an </script>")
    page = sight.page(tmp_path / "a.html", lang="zh", heads=2)
    text = page.path.read_text()
    assert '"name":"inputs"' in text
    assert 'lang="zh"' in text
    assert "<script>alert" not in text
    sight.draw(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[1:4] == b"PNG"
    assert sight.page(None, title="x").path is None
    # half a character in a title is shown as none
    assert "<title>x?</title>" in sight.page(tmp_path / "b.html", title="x\udce8").html
    sight.draw(tmp_path / "b.svg", title="x\udce8")
    both = sight.page(None, other=look_at_translation(transformer, "西安", target="beijing"))
    assert '"models":["A: ' in both.html
    with pytest.raises(RegardError, match="must end in"):
        sight.draw(tmp_path / "a.txt")


def test_two_sights_with_other_sides_are_two_pages():
    from regard.engine.look import look
    from regard.watching import Seen

    def see(pair):
        seen = Seen()
        seen.add("layer", look(torch.eye(3)[None, None], torch.eye(3)[None, None]), "self")
        labels = label_said([0, 1, 2], Speaker(lambda ids: "abc"[: len(ids)], {}))
        return Sight(seen, dict.fromkeys(pair, labels), {"layer": pair})

    one, other = see(("target", "source")), see(("source", "target"))
    assert one.page(None, other=see(("target", "source"))).html
    with pytest.raises(RegardError) as error:
        one.page(None, other=other)
    assert str(error.value) == "look other has 'layer' between other texts than this one: write two pages."


def test_a_head_that_looks_next_door_tells_little():
    from regard.engine.look import look
    from regard.watching import Seen

    # head 0 attends to the token before, head 1 to the token five places on
    key = 30 * torch.eye(9)
    heads = torch.stack([torch.eye(9).roll(-1, 1), torch.eye(9).roll(5, 1)])[None]
    seen = Seen()
    seen.add("layer", look(heads, key.expand(1, 2, 9, 9)), "self")
    sight = Sight(seen, {}, {"layer": ("text", "text")})
    assert find_best_head(sight) == ("layer", 1)


def test_nothing_to_tell(transformer):
    sight = look_at_translation(transformer, TEXT, target="xi'an")
    sight.seen._looks.clear()
    with pytest.raises(RegardError, match=r"^look saw no attention: none of the layers that were chosen ran\.$"):
        find_best_head(sight)


def test_a_folder(translator, tmp_path):
    translator.save(tmp_path / "run")
    sight = look_at(tmp_path / "run", TEXT, target="xi'an", device="cpu")
    assert sight.tokens["source"].text == TEXT
    with pytest.raises(RegardError, match=r"^look needs a text: give one\.$"):
        look_at(tmp_path / "run", device="cpu")
    with pytest.raises(RegardError, match="is not a folder on this machine"):
        look_at(tmp_path / "none", TEXT)
    for message, options in (
        ("look text is empty: give some words.", {"text": " \n"}),
        ("look target is empty: give some words.", {"text": TEXT, "target": ""}),
        ("look text is not unicode (half a surrogate pair): read it as UTF-8.", {"text": "\udce8"}),
        ("look target is not unicode (half a surrogate pair): read it as UTF-8.", {"text": TEXT, "target": "\udce8"}),
        ("look image is for models that see: this one does not, leave it out.",
         {"text": TEXT, "image": "a.png"}),
    ):  # fmt: skip
        with pytest.raises(RegardError) as error:
            look_at(tmp_path / "run", device="cpu", **options)
        assert str(error.value) == message


def test_learned_positions_are_a_limit():
    small = build("transformer", position="learned", max_len=8)
    assert look_at_translation(small, TEXT, target="one two").tokens["target"].text == "one two"
    with pytest.raises(RegardError, match="sentence 1 has 10 tokens with <eos>, and the model learned 8 positions"):
        look_at_translation(small, "西" * 9, target="xi'an")
    with pytest.raises(RegardError) as error:
        look_at_translation(small, TEXT, target="xi'an " * 9)
    words = "look target has 10 tokens with <eos>, and the model learned 8 positions: shorten it."
    assert str(error.value) == words


def test_nothing_is_left_in_the_folder(translator, tmp_path):
    translator.save(tmp_path / "run")
    before = sorted(os.listdir(tmp_path / "run"))
    look_at(os.fspath(tmp_path / "run"), "西安", device="cpu")
    assert sorted(os.listdir(tmp_path / "run")) == before
    assert Translator.load(tmp_path / "run", "cpu").model.training is False
