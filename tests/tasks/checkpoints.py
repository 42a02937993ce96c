"""Hugging Face folders small enough to be made for every test, with weights drawn at random."""

from __future__ import annotations

import json
import pathlib
import socket

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

TEXTS = ["the cat sat on the mat", "介绍一下西安", "the dog ran to the cat"]
KINDS = ("bert", "gpt2", "llama", "t5", "bart")
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


def refuse_network(monkeypatch) -> None:
    """Let whatever reaches for the network fail."""

    def refuse(*args, **options):
        raise AssertionError("something reached for the network")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def train_bytes() -> Tokenizer:
    """Byte-level BPE that puts <s> and </s> around a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = ["<pad>", "<s>", "</s>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=290, special_tokens=names, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    # as sentence-transformers leaves it in its files: nothing for a look
    tokenizer.enable_padding(length=40, pad_id=0, pad_token="<pad>")
    tokenizer.enable_truncation(6)
    return tokenizer


def configure(kind: str, **changes):
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "vocab_size": 290}
    if kind == "bert":
        return transformers.BertConfig(**{**ids, **SIZES, "max_position_embeddings": 32, **changes})
    if kind == "gpt2":
        return transformers.GPT2Config(**{**ids, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, **changes})
    if kind == "llama":
        return transformers.LlamaConfig(**{**ids, **SIZES, "num_key_value_heads": 1, **changes})
    if kind == "t5":
        sizes = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0}
        return transformers.T5Config(**{**ids, **sizes, **changes})
    if kind == "bart":
        sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in
                 (("layers", 2), ("attention_heads", 2), ("ffn_dim", 24))}  # fmt: skip
        more = {"d_model": 16, "max_position_embeddings": 32, "decoder_start_token_id": 2, "forced_eos_token_id": None}
        return transformers.BartConfig(**{**ids, **sides, **more, **changes})
    sizes = {**SIZES, "image_size": 32, "patch_size": 8}
    return transformers.ViTConfig(**{**sizes, **changes})


def build(folder: pathlib.Path, kind: str, *, entries: dict | None = None, **changes) -> pathlib.Path:
    """A folder as `save_pretrained` writes it; `entries` are put into its config.json afterwards."""
    torch.manual_seed(5)
    config = configure(kind, **changes)
    is_pair = config.is_encoder_decoder
    opener = transformers.AutoModelForSeq2SeqLM if is_pair else transformers.AutoModel
    model = opener.from_config(config).eval()
    # weights as they are drawn are too small to choose; T5's are not, it does not divide its scores
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 if kind == "t5" else 3)
    model.save_pretrained(folder)
    if kind == "vit":
        rules = {"size": {"height": 32, "width": 32}, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.3, 0.5]}
        (folder / "preprocessor_config.json").write_text(json.dumps(rules))
    else:
        train_bytes().save(str(folder / "tokenizer.json"))
    if entries:
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **entries}))
    return folder
