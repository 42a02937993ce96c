"""Faults of the models: decoding, states, padding, folders, kernel regression."""

from tools.faults.fault import Fault

DECODE, TRANSFORMER = "models/decode.py", "models/transformer.py"
PRETRAINED, WATSON = "models/pretrained.py", "models/nadaraya_watson.py"

MODELS = [
    Fault(
        DECODE,
        "return math.pow((5 + length) / 6, alpha)",
        "return math.pow(length / 6, alpha)",
        "the length penalty forgets its five",
    ),
    Fault(
        DECODE,
        "state = _follow(state, (each * beam + origin)[is_open].flatten())",
        "state = _follow(state, (each * beam + torch.arange(beam, device=rows.device))[is_open].flatten())",
        "beams that change places keep their old states",
    ),
    Fault(
        DECODE,
        "for token in {bos, pad} - {eos}:",
        "for token in {bos} - {eos}:",
        "padding can be said",
    ),
    Fault(
        DECODE,
        "torch.softmax(kept.double() / temperature, -1)",
        "torch.softmax(kept.double() * temperature, -1)",
        "a low temperature draws boldly",
    ),
    Fault(
        "models/seq2seq_state.py",
        "lens = None if self.valid_lens is None else self.valid_lens[rows]",
        "lens = None if self.valid_lens is None else self.valid_lens[: len(rows)]",
        "sentences that go on have the lengths of others",
    ),
    Fault(
        TRANSFORMER,
        "caches[0][0].length if caches else 0)",
        "0)",
        "every step of a decoder stands at the first position",
    ),
    Fault(
        TRANSFORMER,
        "X = embedding(ids) * self.config.num_hiddens**0.5",
        "X = embedding(ids)",
        "embeddings are not scaled",
    ),
    Fault(
        "models/encoder.py",
        "valid_lens, seen = None, Allowed(valid[:, None, None])",
        "valid_lens, seen = None, Allowed(mask[:, None, None])",
        "beside a mask lengths are forgotten",
    ),
    Fault(
        "models/encoder.py",
        "seen if self.window is None else self.window & seen",
        "seen",
        "beside a mask the window is forgotten",
    ),
    Fault(
        TRANSFORMER,
        "source = clear_padding(source, find_valid(self, source, source_lens))",
        "pass",
        "what is hidden in a source's padding reaches gradients",
    ),
    Fault(
        PRETRAINED,
        "getattr(config, x.name) != x.default",
        "True",
        "folders that earlier versions could read are said to be new",
    ),
    Fault(
        "models/encoder.py",
        "spelling.masked_fill(is_hidden[..., None], 0)",
        "spelling",
        "letters tell which token was hidden",
    ),
    Fault(
        "models/bert.py",
        "gaps = (truths[:, 1:] & ~truths[:, :-1]).sum()",
        "gaps = (~truths[:, 0]).sum()",
        "padding between tokens is taken for padding at the end",
    ),
    Fault(
        PRETRAINED,
        "                (place / CONFIG).unlink(missing_ok=True)\n",
        "                pass\n",
        "an old config lies beside new weights for a moment",
    ),
    Fault(
        PRETRAINED,
        "        return model.eval()\n",
        "        return model\n",
        "a model that is loaded still drops out",
    ),
    Fault(
        WATSON,
        "mask: Mask = ~Window(0, 0, offset=0)",
        "mask: Mask = ~Window(0, 0, offset=1)",
        "leave-one-out leaves out the next sample",
    ),
    Fault(
        WATSON,
        "return (errors * weight).sum(-1) / weight.sum()",
        "return (errors * weight).mean(-1)",
        "a weighted error is divided by the number of samples",
    ),
]
