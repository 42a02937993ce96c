"""Whose tokens are meant, pictures and graphs, and what the page complains of."""

import base64
import io
import types

import numpy as np
import pytest
import torch

from regard import RegardError, mask
from regard.engine.look import look
from regard.views.page import Labels, label_tokens, page
from regard.views.page.note import tell_check
from regard.watching import Check
from tests.views.page.reading import Read

SOURCE, TARGET = ["a", "b", "c", "d"], ["x", "y", "<eos>"]


def see(n, m=None, heads=1, seed=0, **terms):
    draw = torch.Generator().manual_seed(seed)
    query, key = torch.randn(1, heads, n, 4, generator=draw), torch.randn(1, heads, m or n, 4, generator=draw)
    return look(query, key, keep=True, **terms)


def show(seen, tokens, **options):
    return Read(page(seen, tokens, None, **options).html)


def place(read):
    names = [side["name"] for side in read.data["sides"]]
    return [(names[entry["queries"]], names[entry["keys"]], entry["kind"]) for entry in read.entries]


class Seen(dict):
    """A mapping with what a watch knows besides."""

    def __init__(self, looks, kinds=None, checks=None, model="tiny"):
        super().__init__(looks)
        self.model = model
        self.kinds, self.checks = kinds or {}, checks or {}


def test_lengths_say_whose_tokens_are_meant():
    seen = {"encoder.0": see(4), "decoder.0.self": see(3), "decoder.0.cross": see(3, 4)}
    read = show(seen, {"source": SOURCE, "target": TARGET})
    assert place(read) == [("source", "source", "self"), ("target", "target", "self"), ("target", "source", "cross")]
    assert [entry["layer"] for entry in read.entries] == [0, 1, 2]


def test_names_and_kinds_say_it_where_lengths_do_not():
    names = ["encoder.layers.0.self_attn", "decoder.layers.0.self_attn", "decoder.layers.0.encoder_attn"]
    kinds = dict(zip(names, ["self", "self", "cross"], strict=True))
    wanted = [("source", "source", "self"), ("target", "target", "self"), ("target", "source", "cross")]
    looks = {name: see(3, seed=k) for k, name in enumerate(names)}
    sides = {"source": SOURCE[:3], "target": TARGET}
    assert place(show(Seen(looks, kinds), sides)) == wanted
    assert place(show(looks, sides)) == wanted
    told = {"*encoder_attn": ("target", "source"), "encoder*": ("source", "source"), "*": ("target", "target")}
    assert place(show(looks, sides, sides=told)) == wanted


def test_steps_with_a_cache_are_the_last_queries():
    read = show({"a": see(2, 4)}, SOURCE)
    assert place(read) == [("text (last 2)", "text", "self")]
    assert read.data["sides"][1]["labels"] == ["c", "d"]


def test_steps_are_joined():
    class Steps(Seen):
        steps = frozenset({"a#2"})

        def join(self):
            return Seen({"a": see(4)})

    read = show(Steps({"a": see(3), "a#2": see(1, 4)}), SOURCE)
    assert [(entry["name"], entry["n"]) for entry in read.entries] == [("a", 4)]


def test_a_model_that_ran_twice_on_one_source_is_shown():
    transformers = pytest.importorskip("transformers")
    watching = pytest.importorskip("regard.watching")
    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 2}
    config = transformers.T5Config(vocab_size=20, decoder_start_token_id=0, **sizes)
    model = transformers.T5Model(config).eval()
    source, target = torch.tensor([[3, 4, 5, 6]]), torch.tensor([[0, 7, 8]])
    with watching.watch(model, keep=True) as seen, torch.no_grad():
        for _ in range(2):
            model(input_ids=source, decoder_input_ids=target)
    read = show(seen, {"source": SOURCE, "target": TARGET})
    # two of an encoder, two of a decoder and two between them, each of two heads; none of them grown together
    names = list(dict.fromkeys(entry["name"] for entry in read.entries))
    assert len(read.entries) == 12
    assert {name + "#2" for name in names[:3]} == set(names[3:])
    assert {(entry["n"], entry["m"]) for entry in read.entries} == {(4, 4), (3, 3), (3, 4)}
    shown = {(entry["name"], entry["head"]): entry["id"] for entry in read.entries}
    for (name, head), entry in shown.items():
        assert np.allclose(read.get(entry, "map"), seen[name].map[0, head], rtol=1e-3, atol=1e-6)


def test_checks_names_and_labels_are_shown():
    check = types.SimpleNamespace(text=lambda: "16 rows recomputed: within 1.3x of float32's rounding")
    labels = label_tokens("a 猫!", [(0, 0), (0, 1), (2, 3), (2, 3), (3, 4)], ["<s>", None, None, None, None])
    read = show(Seen({"a": see(5), "b": see(5)}, checks={"a": check, "b": None}), labels, lang="zh", title="t")
    assert [entry["check"] for entry in read.entries] == [{"en": check.text()}, {}]
    assert read.data["models"] == ["tiny"]
    assert (read.data["lang"], read.data["title"], read.data["version"]) == ("zh", "t", 1)
    assert read.data["sides"] == [
        {"name": "text", "labels": ["<s>", "a", " 猫", "⟨2/2⟩", "!"], "joined": True, "marks": [3],
         "special": [True, False, False, False, False]}
    ]  # fmt: skip
    assert read.entries[0]["terms"] == "Dot(), Softmax(), Full()"


def test_other_models_may_have_tokens_of_their_own():
    read = show(see(4), SOURCE, other=(Seen({"b": see(3)}), TARGET))
    assert [side["name"] for side in read.data["sides"]] == ["text", "text B"]
    assert [(entry["model"], entry["queries"], entry["n"]) for entry in read.entries] == [(0, 0, 4), (1, 1, 3)]
    assert read.data["models"] == ["A", "B: tiny"]


@pytest.mark.parametrize("kind", ["bytes", "numbers", "channels first", "grey", "file", "pil"])
def test_pictures_keep_their_pixels(kind, tmp_path):
    pil = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    if kind == "grey":
        pixels = pixels[..., 0]
    pil.fromarray(pixels).save(tmp_path / "picture.png")
    image = {
        "bytes": pixels, "numbers": pixels / 255, "grey": pixels, "file": tmp_path / "picture.png",
        "channels first": torch.from_numpy(pixels.T.copy()).transpose(-1, -2) if pixels.ndim == 3 else pixels,
        "pil": pil.fromarray(pixels),
    }[kind]  # fmt: skip
    read = show(see(7), list("abcdefg"), image=image, grid=(2, 3), skip=1)
    about = read.data["image"]
    assert (about["width"], about["height"], about["grid"], about["skip"]) == (8, 6, [2, 3], 1)
    head, _, raw = about["png"].partition(",")
    assert head == "data:image/png;base64"
    assert np.array_equal(np.asarray(pil.open(io.BytesIO(base64.b64decode(raw)))), pixels)


def test_square_grids_are_found():
    read = show(see(5), list("abcde"), image=np.zeros((4, 4, 3), np.uint8), skip=1)
    assert read.data["image"]["grid"] == [2, 2]


@pytest.mark.parametrize("cells", [256, 8], ids=["map", "pairs"])
@pytest.mark.parametrize("keep", [True, False])
def test_edges_have_the_weight_of_their_end_for_their_start(cells, keep):
    draw = torch.Generator().manual_seed(0)
    query, key = torch.randn(1, 2, 20, 4, generator=draw), torch.randn(1, 2, 20, 4, generator=draw)
    edges = torch.randint(0, 20, (2, 31), generator=draw)
    seen = look(query, key, mask=mask.Causal(), keep=keep, map=cells, top=20)
    read = show(seen, [str(k) for k in range(20)], graph={"edges": edges, "at": [[0.0, 1.0]] * 20})
    scores = (query[0] @ key[0].transpose(1, 2) / 2).masked_fill(torch.ones(20, 20).triu(1).bool(), -torch.inf)
    wanted = torch.softmax(scores, -1)[1][edges[1], edges[0]]
    assert np.allclose(read.blob(read.data["graph"]["weights"]["1"]), wanted, rtol=2e-3, atol=1e-6)
    assert read.data["graph"]["edges"] == edges.T.tolist()
    assert read.data["graph"]["at"][3] == [0.0, 1.0]


def test_two_edges_are_rows_of_from_and_to_and_a_list_has_pairs():
    for graph in (torch.tensor([[0, 1], [2, 2]]), np.array([[0, 1], [2, 2]]), [(0, 2), (1, 2)], [[0, 2], [1, 2]]):
        read = show(see(3), TARGET, graph=graph)
        assert read.data["graph"]["edges"] == [[0, 2], [1, 2]]


def test_edges_outside_of_the_largest_weights_are_not_known():
    query, key = torch.zeros(1, 1, 20, 1), torch.zeros(1, 1, 20, 1)
    # even weights to start with, and more for the first two keys; query 3 sees these two alone
    allowed = torch.ones(20, 20).bool()
    allowed[3, 2:] = False
    bias = torch.zeros(20, 20)
    bias[:, 0], bias[:, 1] = 2.0, 1.0
    seen = look(query, key, bias=bias, mask=allowed, top=4, map=8, rows=(5,))
    keys = seen.top_keys[0, 0, 7].tolist()
    other = next(k for k in range(20) if k not in keys)
    edges = [(0, 7), (other, 7), (9, 3), (19, 5), (1, 3)]
    read = show(seen, [str(k) for k in range(20)], graph=edges)
    dense = torch.softmax(bias.masked_fill(~allowed, -torch.inf), -1)
    wanted = np.array([dense[stop, start] for start, stop in edges])
    # a list that is not full has all there is, and a chosen row is whole
    wanted[1] = np.nan
    np.testing.assert_allclose(read.blob(read.data["graph"]["weights"]["0"]), wanted, rtol=2e-3)
    said = "1 edge weight unknown, outside of the largest of its query: the graph shows 0 there"
    assert said in read.data["note"]["en"]
    assert "1 条边的权重未知" in read.data["note"]["zh"]
    known = show(seen, [str(k) for k in range(20)], graph=edges[:1])
    assert "unknown" not in known.data["note"]["en"]


GREY = np.zeros((4, 4, 3), np.uint8)
MESSAGES = [
    (
        "page tokens do not fit 'layer.0': it has 3 queries and 3 keys, the labels are text 4. Give one label a token.",
        lambda: page({"layer.0": see(3)}, SOURCE, None),
    ),
    (
        "page cannot tell whose tokens 'a' has (3 by 3 fits several): name them, sides={'a': (query side, key side)}.",
        lambda: page({"a": see(3)}, {"p": TARGET, "q": TARGET}, None),
    ),
    (
        "page sides['a*'] must be two of ['text'], got ('text', 'more').",
        lambda: page({"a": see(3)}, TARGET, None, sides={"a*": ("text", "more")}),
    ),
    (
        "page sides['*'] has 4 by 4 labels, but 'a' is 3 by 3: name other sides.",
        lambda: page({"a": see(3)}, {"p": SOURCE, "q": TARGET}, None, sides={"*": ("p", "p")}),
    ),
    (
        "page tokens must be a list of labels, or a mapping of names to lists; got none.",
        lambda: page(see(3), {}, None),
    ),
    ("page lang must be 'en' or 'zh', got 'fr'.", lambda: page(see(3), TARGET, None, lang="fr")),
    ("page heads must be a whole number above 0, got 0.", lambda: page(see(3), TARGET, None, heads=0)),
    ("page sequence must be 0 to 0 for 'a', got 1.", lambda: page({"a": see(3)}, TARGET, None, sequence=1)),
    ("page seen is empty: no attention ran under watch(…), or none was chosen.", lambda: page({}, TARGET, None)),
    (
        "page seen must be a look or weights, or a mapping of names to them, got list.",
        lambda: page([see(3)], TARGET, None),
    ),
    ("page skip must be a whole number, 0 or more, got -1.", lambda: page(see(3), TARGET, None, image=GREY, skip=-1)),
    (
        "page grid 2 by 2 and skip 0 make 4 tokens, the heads have 3: give grid=(rows, columns).",
        lambda: page(see(3), TARGET, None, image=GREY, grid=(2, 2)),
    ),
    (
        "page image must be (height, width), or that with 3 or 4 colours, got (2, 2, 2).",
        lambda: page(see(4), SOURCE, None, image=np.zeros((2, 2, 2), np.uint8)),
    ),
    (
        "page image must be fractions from 0 to 1 or whole numbers from 0 to 255: undo its normalisation.",
        lambda: page(see(4), SOURCE, None, image=np.full((2, 2, 3), -1.5)),
    ),
    (
        "page graph edges name node 7, but there are 3: give labels for all.",
        lambda: page(see(3), TARGET, None, graph=[[0, 7]]),
    ),
    (
        "page graph has 2 nodes, but no head has as many queries and keys: give its nodes.",
        lambda: page(see(3), TARGET, None, graph={"edges": [[0, 1]], "nodes": ["a", "b"]}),
    ),
    (
        "page graph must be edges, or a mapping with 'edges', got keys ['nodes'].",
        lambda: page(see(3), TARGET, None, graph={"nodes": []}),
    ),
    (
        "page graph at must be a finite place (x, y) for each of the 3 nodes, got shape (2, 2).",
        lambda: page(see(3), TARGET, None, graph={"edges": [[0, 1]], "at": [[0, 0], [1, 1]]}),
    ),
]


@pytest.mark.parametrize(("message", "call"), MESSAGES, ids=[message[:50] for message, _ in MESSAGES])
def test_wrong_input_is_named(message, call):
    with pytest.raises(RegardError) as error:
        call()
    assert str(error.value) == message
    assert len(message) <= 200


def test_a_file_that_is_no_picture_is_named(tmp_path):
    (tmp_path / "a.png").write_text("no picture")
    with pytest.raises(RegardError) as error:
        page(see(4), SOURCE, None, image=tmp_path / "a.png")
    assert str(error.value) == "page image 'a.png' is not a PNG file: convert it, or give an array."


def test_long_names_make_no_long_complaint():
    name = "layer." * 40
    with pytest.raises(RegardError) as error:
        page({name: see(3)}, {f"side {k}" * 9: SOURCE for k in range(9)}, None)
    assert len(str(error.value)) <= 200
    assert "\n" not in str(error.value)


def test_a_watched_model_is_shown():
    watching = pytest.importorskip("regard.watching")
    layers = pytest.importorskip("regard.layers")
    torch.manual_seed(0)
    layer = layers.SelfAttention(num_hiddens=8, num_heads=2)
    with watching.watch(layer, keep=True) as seen:
        layer(torch.randn(1, 5, 8))
    read = show(seen, list("hello"))
    assert len(read.entries) == 2
    assert "rows recomputed" in read.entries[0]["check"]["en"]
    assert {entry["kind"] for entry in read.entries} == {"self"}


def test_a_check_is_told_in_both_languages():
    told = [
        tell_check(x) for x in (Check(16, 2.6e-3, 2e-3, "bfloat16"), Check(4, 1.0, 1e-7, "float32"), Check(why="x"))
    ]
    assert told[0] == {
        "en": "16 rows recomputed: within 1.3x of bfloat16's rounding",
        "zh": "重算了 16 行，误差不超过 bfloat16 舍入误差的 1.3 倍",
    }
    assert "OFF" in told[1]["en"]
    assert "不符" in told[1]["zh"]
    assert told[2] == {"en": "not checked: x", "zh": "未检查：x"}


def start(*given, **options):
    return {name: value for name, value in show(*given, **options).data["start"].items() if name != "query"}


def test_it_opens_on_the_most_telling_head():
    even, sharp = see(5), look(torch.eye(5)[None, None].flip(-1), 50 * torch.eye(5)[None, None])
    labels = list("abcde")
    assert start({"a": even, "b": sharp}, labels) == {"view": "grid", "entry": even.entropy.shape[1]}
    assert start({"b": sharp}, labels) == {"view": "text", "entry": 0}
    cross = look(torch.eye(3, 5)[None, None], 50 * torch.eye(5)[None, None])
    sides = {"source": labels, "target": list("xyz")}
    assert start({"a": sharp, "decoder": cross}, sides) == {"view": "align", "entry": 1}
    # a translator with one attention is a translator too
    assert start({"decoder": cross}, sides) == {"view": "align", "entry": 0}
    # one row is a text with its weights
    row = look(torch.ones(1, 1, 1, 5), torch.eye(5)[None, None])
    sides = {"text": labels, "label": ["polite"]}
    assert start({"a": sharp, "pooling": row}, sides) == {"view": "text", "entry": 1}
    assert start({"a": sharp}, labels, other={"a": sharp})["view"] == "compare"


def weigh_by(rows):
    """A look whose weights are these, each row adding to one."""
    table = torch.tensor(rows).clamp(min=1e-12)
    size = table.shape[1]
    return look(table.log()[None, None], size**0.5 * torch.eye(size)[None, None])


TRANSLATED = [
    # ， 从 北 京 <eos>
    [0.00, 0.98, 0.01, 0.01, 0.00],
    [0.00, 0.98, 0.01, 0.01, 0.00],
    [0.00, 0.05, 0.10, 0.85, 0.00],
    [1.00, 0.00, 0.00, 0.00, 0.00],
    [0.00, 0.00, 0.00, 0.00, 1.00],
]


def test_it_opens_at_the_row_of_a_word_that_has_a_key_to_itself():
    source = Labels(("，", "从", "北", "京", "<eos>"), (False,) * 4 + (True,), (False,) * 5, True)
    target = Labels((" from", " how", " beijing", " ,", "<eos>"), (False,) * 4 + (True,), (False,) * 5, True)
    seen, tokens = {"decoder": weigh_by(TRANSLATED)}, {"source": source, "target": target}
    # two rows share what they attend to; a comma and the end of a text tell nothing, however sharp they are
    sides = {"decoder": ("target", "source")}
    assert show(seen, tokens, sides=sides).data["start"] == {"view": "align", "entry": 0, "query": 2}
    # of words alone, in the other order, it is the same row
    flipped = {"decoder": weigh_by([row[:4] for row in TRANSLATED[:3][::-1]])}
    tokens = {"source": list("，从北京"), "target": ["beijing", "how", "from"]}
    assert show(flipped, tokens).data["start"]["query"] == 0
    # where there is no word, no row is better than another
    tokens = {"source": list("，。、；"), "target": ["beijing", "how", "from"]}
    assert "query" not in show(flipped, tokens).data["start"]


def test_a_token_tells_nothing_of_itself_or_its_neighbours():
    rows = torch.full((6, 6), 0.02) + 0.88 * torch.eye(6)
    rows[4] = torch.tensor([0.02, 0.6, 0.02, 0.02, 0.32, 0.02])
    assert show({"layer": weigh_by(rows.tolist())}, list("abcdef")).data["start"]["query"] == 4


def test_what_is_compared_has_a_name():
    one = Seen({"a": see(2)}, model="Bert")
    other = Seen({"a": see(2)}, model="Llama")
    assert show(one, ["to", " be"]).data["models"] == ["Bert"]
    assert show(one, ["to", " be"], other=other).data["models"] == ["A: Bert", "B: Llama"]
    assert show(one, ["to", " be"], other=(one, ["or", " not"])).data["models"] == ["A: to be", "B: or not"]
    named = show(one, ["to", " be"], other=other, names=["first", "a very long name of the other run"])
    assert named.data["models"] == ["A: first", "B: a very long name of the oth…"]
    for names in ("ab", ["a"], [1, 2], 5):
        with pytest.raises(RegardError) as error:
            page(one, ["to", " be"], out=None, other=other, names=names)
        assert str(error.value) == f"page names must be two texts, one for each that is compared, got {names}."


def test_it_says_whether_labels_were_produced():
    assert show({"a": see(2)}, ["to", " be"]).data["produced"] is False
    assert show({"a": see(2)}, ["to", " be"], produced=True).data["produced"] is True
