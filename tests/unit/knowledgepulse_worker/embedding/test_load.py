"""Loading the configured embedder; errors name the setting to change."""

import logging
import subprocess
import sys

import numpy as np
import pytest

from knowledgepulse_bert import supported
from knowledgepulse_worker.embedding import LexicalEmbedder, load_embedder
from knowledgepulse_worker.errors import MissingExtraError, ModelError
from knowledgepulse_worker.settings import CacheSettings, EmbeddingSettings
from support.bert import POSITIONS, WIDTH, write_bert


def load(dimensions=WIDTH, **embedding):
    return load_embedder(EmbeddingSettings(**embedding), CacheSettings(dimensions=dimensions))


@pytest.fixture
def folder(tmp_path):
    return write_bert(tmp_path / "model")


def test_the_backend_none_has_no_embedder():
    assert load(backend="none") is None


@pytest.mark.parametrize(("text", "description"), [(None, "lexical, text parts"), ("sdk", "lexical")])
def test_lexical_uses_the_cache_s_dimensions_and_reads_parts_by_default(text, description):
    embedder = load(16, backend="lexical", text=text)

    assert isinstance(embedder, LexicalEmbedder)
    assert (embedder.dimensions, embedder.description) == (16, description)


def test_neither_needs_openvino():
    code = "import sys, knowledgepulse_worker.embedding; sys.exit('openvino' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_model_in_a_folder_runs_in_openvino_and_is_logged(folder, caplog):
    with caplog.at_level(logging.INFO):
        embedder = load(model=str(folder), device="cpu", precision="float32", max_tokens=16)

    assert embedder.runtime.startswith("OpenVINO ")
    assert f"{folder} runs in {embedder.runtime} on cpu" in caplog.text


def test_mismatched_dimensions_are_an_error_with_both_numbers(folder):
    with pytest.raises(ModelError, match=rf"cache\.dimensions: got 16; {folder} .* with {WIDTH} dimensions"):
        load(16, model=str(folder), device="cpu", max_tokens=16)


def test_positions_before_the_first_are_no_part_of_the_window(tmp_path):
    """RoBERTa's positions begin after the padding token's id, so its table has more rows than it reads."""
    folder = write_bert(tmp_path, unigram=True, model_type="xlm-roberta", pad_token_id=1)

    with pytest.raises(ModelError, match=rf"got {POSITIONS - 1}; .* reads at most {POSITIONS - 2}"):
        load(model=str(folder), device="cpu", max_tokens=POSITIONS - 1)
    assert load(model=str(folder), device="cpu", max_tokens=POSITIONS - 2).embed(["x " * 50]).truncated == 1


def test_a_prefix_precedes_each_text_and_is_part_of_the_identity(tmp_path):
    """So a ledger is cut if it changes."""
    folder = write_bert(tmp_path, unigram=True)
    plain, query, passage = (
        load(model=str(folder), device="cpu", precision="float32", max_tokens=16, prefix=prefix)
        for prefix in ("", "ab: ", "de: ")
    )

    [vector] = query.embed(["abc def"]).vectors
    assert np.array_equal(vector, plain.embed(["ab: abc def"]).vectors[0])
    assert not np.array_equal(vector, plain.embed(["abc def"]).vectors[0])
    assert len({plain.identity, query.identity, passage.identity}) == 3
    assert query.description == f'{folder}, prefix "ab: "'


def test_another_architecture_without_the_extra_names_both(tmp_path, monkeypatch):
    folder = write_bert(tmp_path, model_type="distilbert")
    monkeypatch.delitem(sys.modules, "knowledgepulse_worker.embedding.sentence_transformer", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)

    with pytest.raises(MissingExtraError) as raised:
        load(model=str(folder), device="cpu", max_tokens=16)

    assert (
        f"{folder}/config.json: model_type is 'distilbert', not 'bert' or 'roberta' or 'xlm-roberta'; "
        in str(raised.value)
    )
    assert "torch is not installed; " in str(raised.value)
    assert "pip install -c constraints.txt '.[sentence-transformers]'" in str(raised.value)


@pytest.mark.reference
def test_another_architecture_runs_in_sentence_transformers(tmp_path):
    from transformers import DistilBertConfig, DistilBertModel

    from support.bert import CONFIG

    folder = write_bert(tmp_path)
    config = DistilBertConfig(
        vocab_size=CONFIG["vocab_size"],
        dim=WIDTH,
        hidden_dim=24,
        n_layers=1,
        n_heads=3,
        max_position_embeddings=40,
    )
    DistilBertModel(config).save_pretrained(folder)

    embedder = load(model=str(folder), device="cpu", max_tokens=16)

    assert embedder.runtime.startswith("PyTorch ")
    assert load(model=str(folder), device="cpu", max_tokens=16).identity == embedder.identity
    assert load(model=str(folder), device="cpu", max_tokens=15).identity != embedder.identity
    assert embedder.embed(["a b", "x " * 50]).truncated == 1
    (folder / "pytorch_model.bin").write_bytes(b"other weights")
    assert load(model=str(folder), device="cpu", max_tokens=16).identity != embedder.identity
    with pytest.raises(ModelError, match=r"embedding\.truncation: sdk needs a BERT model on the CPU"):
        load(model=str(folder), device="cpu", max_tokens=16, truncation="sdk")


@pytest.mark.reference
def test_what_sentence_transformers_cannot_load_is_an_error_that_names_the_folder(tmp_path):
    folder = write_bert(tmp_path, model_type="no-such-model")

    with pytest.raises(ModelError, match=rf"embedding\.model: {folder} cannot be loaded"):
        load(model=str(folder), device="cpu", max_tokens=16)


@pytest.mark.reference
def test_a_missing_device_is_an_error_that_names_the_setting(folder, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    with pytest.raises(ModelError, match=r"embedding\.device: got cuda; .* set auto or cpu"):
        load(model=str(folder), device="cuda", max_tokens=16)


@pytest.mark.reference
def test_a_gpu_that_would_emulate_bfloat16_refuses_it(folder, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation=True: including_emulation)

    with pytest.raises(ModelError, match=r"embedding\.precision: got bfloat16, .* set auto or float32"):
        load(model=str(folder), device="cuda", precision="bfloat16", max_tokens=16)


@pytest.fixture
def without_bfloat16(monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")


@pytest.mark.model
@pytest.mark.usefixtures("without_bfloat16")
def test_without_bfloat16_the_model_runs_in_int16(monkeypatch):
    if "avx2" not in supported():
        pytest.skip("no AVX2, or there was no compiler")
    embedder = load(384, device="cpu")

    assert (embedder.precision, embedder.runtime) == ("int16", "knowledgepulse_bert with avx2")

    monkeypatch.setattr("knowledgepulse_worker.embedding.int16.supported", tuple)
    assert load(384, device="cpu").precision == "float32"


@pytest.mark.usefixtures("without_bfloat16")
def test_a_model_whose_sizes_do_not_fit_runs_in_float32(folder):
    assert load(model=str(folder), device="cpu", max_tokens=16).precision == "float32"

    with pytest.raises(ModelError, match=r"embedding\.precision: got int16, .* set auto or float32"):
        load(model=str(folder), device="cpu", max_tokens=16, precision="int16")
