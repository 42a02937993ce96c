"""Watches that overlap, share configs or fail: the model runs on and is left as it was."""

import copy
import pickle
import threading

import pytest
import torch
from torch import nn

from regard import RegardError
from regard.layers import SelfAttention
from regard.watching import hugging, names, record, watch

transformers = pytest.importorskip("transformers")

from tests.watching.families import build, feed, list_kinds  # noqa: E402
from tests.watching.test_hugging import list_registered  # noqa: E402


@pytest.fixture(autouse=True)
def _nothing_is_left_behind():
    before = list_registered()
    yield
    assert list_registered() == before
    assert not names.BELOW
    assert not names.OVER


def test_two_models_of_one_config_are_seen_once():
    one = build("bert", "sdpa")
    other = transformers.BertModel(one.config).eval()
    other.config = one.config
    model, inputs = nn.ModuleDict({"a": one, "b": other}), feed("bert")
    with torch.no_grad():
        plain = one(**inputs)[0], other(**inputs)[0]
        with watch(model) as seen:
            assert torch.equal(plain[0], one(**inputs)[0])
            assert torch.equal(plain[1], other(**inputs)[0])
    wanted = [f"{host}.encoder.layer.{i}.attention.self" for host in "ab" for i in (0, 1)]
    assert list(seen) == wanted
    assert set(list_kinds(model)) == {"sdpa"}


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 1, 0), (2, 0, 1)])
@pytest.mark.parametrize("kind", ["sdpa", "eager"])
def test_watches_end_in_any_order(order, kind):
    model, inputs = build("llama", kind), feed("llama")
    watches = [watch(model, layers=[0]) for _ in range(3)]
    seen = [each.__enter__() for each in watches]
    with torch.no_grad():
        for at, number in enumerate(order):
            model(**inputs)
            watches[number].__exit__(None, None, None)
            # those that are not over see each call, those that are see none
            assert [len(x) for x in seen] == [1 + min(at, order.index(i)) for i in range(3)]
        plain = model(**inputs)
    assert set(list_kinds(model)) == {kind}
    assert plain[0].isfinite().all()


def test_threads_that_watch_one_model():
    model, inputs = build("bert", "sdpa"), feed("bert")
    with torch.no_grad():
        plain = model(**inputs)[0]
    faults = []
    start = threading.Barrier(4)

    def work():
        try:
            start.wait()
            for _ in range(5):
                with torch.no_grad(), watch(model, top=1, map=4) as seen:
                    assert torch.equal(plain, model(**inputs)[0])
                assert len(seen) >= 2
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert set(list_kinds(model)) == {"sdpa"}


def test_a_copy_made_within_the_block_outlives_it():
    model, inputs = build("llama", "sdpa"), feed("llama")
    with torch.no_grad(), watch(model) as seen:
        copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        plain = model(**inputs)[0]
        count = len(seen)
        assert torch.equal(copies[0](**inputs)[0], plain)
        assert len(seen) == count
    for one in copies:
        assert set(list_kinds(one)) == {"sdpa"}
        with torch.no_grad():
            assert torch.equal(one(**inputs)[0], plain)


def test_another_implementation_set_within_the_block_is_put_back():
    model = copy.deepcopy(build("bert", "sdpa"))
    with watch(model):
        model.set_attn_implementation("eager")
    assert set(list_kinds(model)) == {"sdpa"}


def make(name):
    if name == "ours":
        torch.manual_seed(1)
        return SelfAttention(num_hiddens=8, num_heads=2).eval(), {"X": torch.ones(1, 3, 8)}
    return build("bert", "sdpa"), feed("bert")


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory.\nTried"), NotImplementedError(), MemoryError(), TypeError("x")],
)
@pytest.mark.parametrize("part", ["look", "check_rows", "read_call"])
@pytest.mark.parametrize("name", ["ours", "bert"])
def test_a_fault_in_a_look_does_not_stop_the_model(monkeypatch, name, part, error):
    if (name, part) == ("ours", "read_call"):
        pytest.skip("that is for transformers")
    model, inputs = make(name)
    model = model if name == "bert" else Args(model, inputs["X"])
    inputs = inputs if name == "bert" else {}
    with torch.no_grad():
        plain = model(**inputs)[0]

    def fail(*args, **options):
        raise error

    monkeypatch.setattr(hugging if part == "read_call" else record, part, fail)
    count = 2 if name == "bert" else 1
    match = f"watch: {count} attentions could not be looked at or checked, .* first: {type(error).__name__}"
    with torch.no_grad(), pytest.warns(UserWarning, match=match) as warned, watch(model) as seen:
        assert torch.equal(model(**inputs)[0], plain)
    assert len(warned) == 1
    if part == "check_rows":
        assert len(seen) == count
        assert all(check.why.startswith(type(error).__name__) for check in seen.checks.values())
    else:
        assert not len(seen)
        assert not seen.checks
        assert len(seen.skipped) == count
        assert all(reason.startswith(type(error).__name__) for reason in seen.skipped.values())
    assert "\n" not in repr(seen).partition("\n")[2].strip().replace("\n  ", "")


class Args(nn.Module):
    def __init__(self, layer, x):
        super().__init__()
        self.layer, self.x = layer, x

    def forward(self):
        return self.layer(self.x)


def test_no_step_goes_on_from_a_look_that_failed(monkeypatch):
    model, inputs = build("llama", "sdpa"), feed("llama")["input_ids"]
    right, calls = record.look, []

    def fail(*args, **options):
        calls.append(1)
        if len(calls) == 3:
            raise MemoryError
        return right(*args, **options)

    monkeypatch.setattr(record, "look", fail)
    with pytest.warns(UserWarning, match="watch: 1 attentions could not be looked at or checked"), watch(model) as seen:
        model.generate(inputs, max_new_tokens=4, min_new_tokens=4, do_sample=False)
    name = "model.layers.0.self_attn"
    assert f"{name}#2" in seen.skipped
    assert list(seen.join()) == [name, "model.layers.1.self_attn", f"{name}#3"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 3}, "watch rows must be several whole numbers, as in (0, -1), got int."),
        ({"rows": "12"}, "watch rows must be several whole numbers, as in (0, -1), got str."),
        ({"layers": 3.5}, "watch layers must be numbers, names or patterns, got float."),
        ({"layers": [3.5]}, "watch layers must be numbers, names or patterns, got float."),
        ({"layers": True}, "watch layers must be numbers, names or patterns, got bool."),
    ],
)
def test_options_of_another_kind(options, message):
    with pytest.raises(RegardError) as error, watch(SelfAttention(8, 2), **options):
        pass
    assert str(error.value) == message


def test_rows_may_come_from_a_generator():
    model = SelfAttention(num_hiddens=8, num_heads=2).eval()
    with torch.no_grad(), watch(model, rows=(i for i in (0, 2))) as seen:
        model(torch.ones(1, 3, 8))
        model(torch.ones(1, 3, 8))
    assert [look.chosen.tolist() for look in seen.values()] == [[0, 2], [0, 2]]
