"""A BERT model is built from its folder alone, and a folder that does not fit is an error that says why."""

import json
import os

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from knowledgepulse_worker.embedding.bert import UnsupportedModelError, read_bert
from knowledgepulse_worker.embedding.forward import Forward
from knowledgepulse_worker.embedding.tokenizing import Window, read_tokenizer
from knowledgepulse_worker.errors import ModelError
from support.bert import POSITIONS, VOCABULARY, WIDTH, write_bert
from support.recorded_vectors import SMALL_MODELS, SMALL_TEXTS, recorded

TEXT = [2, 5, 6, 7, 8, 0, 9, 3]  # with a padding token amid the text, as "[PAD]" makes one


@pytest.fixture
def folder(tmp_path):
    return write_bert(tmp_path / "model")


def edit(file, **members):
    file.write_text(json.dumps(json.loads(file.read_text()) | members))


def resave(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("variant", SMALL_MODELS)
def test_it_computes_what_sentence_transformers_does(tmp_path, variant):
    folder = write_bert(tmp_path, **SMALL_MODELS[variant])
    bert = read_bert(folder)
    forward = Forward(bert, "float32", bert.positions)
    tokenizer = read_tokenizer(folder, len(VOCABULARY))

    got = [forward(Window(bert.positions).truncate(tokenizer.encode(text).ids)) for text in SMALL_TEXTS]

    np.testing.assert_allclose(got, recorded(variant), rtol=0, atol=1e-6)


def test_every_length_gives_a_unit_vector_that_padding_does_not_change(folder):
    short, long = (Forward(read_bert(folder), "float32", longest) for longest in (5, POSITIONS))
    for length in range(1, POSITIONS + 1):
        ids = [5 + number % 26 for number in range(length)]
        assert np.linalg.norm(long(ids)) == pytest.approx(1, abs=1e-6)
    whole = [5, 6, 7, 8, 9]
    np.testing.assert_allclose(short(whole), long(whole), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors.update({f"bert.{name}": tensors.pop(name) for name in list(tensors)}),
        lambda tensors: tensors.update({"embeddings.position_ids": np.arange(POSITIONS)[None]}),
    ],
    ids=["a prefix", "a buffer"],
)
def test_other_ways_to_save_a_model_change_neither_vectors_nor_identity(folder, change):
    before = read_bert(folder)
    vector = Forward(before, "float32", 16)(TEXT)
    resave(folder, change)
    after = read_bert(folder)

    assert after.identity(Window()) == before.identity(Window())
    assert np.array_equal(Forward(after, "float32", 16)(TEXT), vector)


def test_weights_in_half_precision_are_read(folder):
    resave(
        folder,
        lambda tensors: tensors.update({name: tensor.astype(np.float16) for name, tensor in tensors.items()}),
    )

    assert Forward(read_bert(folder), "float32", 16)(TEXT).shape == (WIDTH,)


@pytest.mark.parametrize("part", ["weights", "pooling", "heads", "epsilon", "max_tokens", "truncation"])
def test_the_identity_depends_on_all_that_makes_vectors_comparable(folder, part):
    before = read_bert(folder).identity(Window())
    if part == "weights":
        resave(folder, lambda tensors: tensors["embeddings.LayerNorm.bias"].__setitem__(0, 7))
    if part == "pooling":
        edit(folder / "1_Pooling/config.json", pooling_mode="cls")
    if part == "heads":
        edit(folder / "config.json", num_attention_heads=1)
    if part == "epsilon":
        edit(folder / "config.json", layer_norm_eps=1e-5)
    window = {"max_tokens": Window(255), "truncation": Window(truncation="sdk")}.get(part, Window())

    assert read_bert(folder).identity(window) != before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda folder: edit(folder / "config.json", model_type="distilbert"),
            "config.json: model_type is 'distilbert', not 'bert' or 'roberta' or 'xlm-roberta'",
        ),
        (lambda folder: edit(folder / "config.json", hidden_act="relu"), "config.json: hidden_act is 'relu'"),
        (
            lambda folder: edit(folder / "config.json", position_embedding_type="relative_key"),
            "config.json: position_embedding_type is 'relative_key'",
        ),
        (
            lambda folder: edit(folder / "1_Pooling/config.json", pooling_mode="max"),
            "1_Pooling/config.json: pools by max, not mean or cls",
        ),
        (
            lambda folder: edit(folder / "1_Pooling/config.json", pooling_mode_cls_token=True),
            "1_Pooling/config.json: pools by cls\\+mean, not mean or cls",
        ),
        (
            lambda folder: (folder / "modules.json").write_text('[{"idx": 0, "type": "x.WordEmbeddings"}]'),
            "modules.json: has the modules WordEmbeddings",
        ),
        (
            lambda folder: edit(folder / "sentence_bert_config.json", do_lower_case=True),
            "sentence_bert_config.json: do_lower_case is True",
        ),
        (
            lambda folder: edit(folder / "config_sentence_transformers.json", default_prompt_name="query"),
            "config_sentence_transformers.json: default_prompt_name is 'query'",
        ),
    ],
)
def test_another_kind_of_model_is_named(folder, change, message):
    for name in ("sentence_bert_config.json", "config_sentence_transformers.json"):
        (folder / name).write_text("{}")
    change(folder)

    with pytest.raises(UnsupportedModelError, match=rf"embedding\.model: {folder}/{message}"):
        read_bert(folder)


def build(folder):
    bert = read_bert(folder)
    read_tokenizer(folder, bert.vocabulary)
    Forward(bert, "float32", 16)


@pytest.mark.parametrize(
    ("file", "harm", "message"),
    [
        ("config.json", os.remove, "cannot be read: No such file"),
        ("config.json", lambda file: file.write_text("{"), "is not JSON"),
        ("config.json", lambda file: file.write_text("[]"), "is not a JSON object"),
        (
            "config.json",
            lambda file: file.write_text('{"model_type": "bert"}'),
            "config.json: hidden_size is None, not a number",
        ),
        (
            "config.json",
            lambda file: edit(file, model_type="xlm-roberta", pad_token_id=None),
            "config.json: pad_token_id is None, not a number",
        ),
        ("config.json", lambda file: edit(file, num_attention_heads=5), "12 dimensions .* 5 heads"),
        ("modules.json", os.remove, "cannot be read: No such file"),
        ("modules.json", lambda file: file.write_text('{"a": 1}'), "is not a list of modules"),
        ("1_Pooling/config.json", os.remove, "cannot be read: No such file"),
        ("tokenizer.json", os.remove, "cannot be read: No such file"),
        ("tokenizer.json", lambda file: file.write_text("{}"), "is not a tokenizer"),
        ("tokenizer.json", lambda file: file.write_bytes(b"\xff"), "is not a tokenizer"),
        ("config.json", lambda file: edit(file, vocab_size=30), "has the token id 56"),
        ("model.safetensors", os.remove, "cannot be read: No such file"),
        ("model.safetensors", lambda file: file.write_bytes(b""), "is damaged or of an unknown format"),
        ("model.safetensors", lambda file: os.truncate(file, 5000), "is damaged or of an unknown format"),
        (
            "model.safetensors",
            lambda file: resave(
                file.parent, lambda tensors: tensors.pop("encoder.layer.1.output.dense.bias")
            ),
            "has no tensor encoder.layer.1.output.dense.bias",
        ),
        ("config.json", lambda file: edit(file, num_hidden_layers=3), "has no tensor encoder.layer.2"),
        (
            "config.json",
            lambda file: edit(file, hidden_size=24),
            "has the shape 57 × 12; config.json implies",
        ),
        ("config.json", lambda file: edit(file, max_position_embeddings=99), "has the shape 40 × 12"),
    ],
)
def test_a_damaged_folder_is_an_error_that_names_the_file(folder, file, harm, message):
    harm(folder / file)

    with pytest.raises(ModelError, match=rf"embedding\.model: {folder}/.*{message}") as raised:
        build(folder)
    assert not isinstance(raised.value, UnsupportedModelError)
    assert "\n" not in str(raised.value)
