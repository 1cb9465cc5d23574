"""The encoder in 13-bit integers against the same layers in NumPy, in 64 bits."""

import math
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import knowledgepulse_bert
from knowledgepulse_bert import Encoder, EncoderSize, Instructions, Layer, Linear, Norm, supported

SIZE = EncoderSize(width=64, heads=2, inner=160, epsilon=1e-12)
LAYERS, LONGEST = 2, 70
SECONDS = os.environ.get("FUZZ_SECONDS", "0")
MARCH = {"avx2": "haswell", "avx512vnni": "cascadelake"}

erf = np.vectorize(math.erf)


@pytest.fixture(params=get_args(Instructions))
def instructions(request):
    if request.param not in supported():
        pytest.skip("this processor lacks the instructions, or there was no compiler")
    return request.param


@pytest.fixture(scope="module")
def layers():
    random = np.random.default_rng(7)

    def floats(*shape):
        return random.normal(0, 0.2, shape).astype(np.float32)

    def linear(outputs, inputs):
        return Linear(floats(outputs, inputs), floats(outputs))

    def norm():
        return Norm(1 + floats(SIZE.width), floats(SIZE.width))

    width, inner = SIZE.width, SIZE.inner
    return [
        Layer(
            *(linear(3 * width, width), linear(width, width), norm()),
            *(linear(inner, width), linear(width, inner), norm()),
        )
        for _ in range(LAYERS)
    ]


NORM = Norm(
    np.linspace(0.5, 1.5, SIZE.width, dtype=np.float32), np.linspace(-1, 1, SIZE.width, dtype=np.float32)
)


@pytest.fixture
def encoder(instructions, layers):
    return Encoder(SIZE, NORM, layers, LONGEST, instructions)


def text(tokens):
    return np.random.default_rng(tokens).normal(0, 1, (tokens, SIZE.width)).astype(np.float32)


def encoded(encoder, tokens):
    encoder(tokens)
    return tokens


def expected(layers, tokens):
    """The same layers without rounding."""
    tokens = normalized(tokens.astype(np.float64), NORM)
    for layer in layers:
        parts = product(tokens, layer.attended).reshape(len(tokens), 3, SIZE.heads, -1)
        query, key, value = parts.transpose(1, 2, 0, 3)
        scores = query @ key.transpose(0, 2, 1) / np.sqrt(query.shape[-1])
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        heads = shares / shares.sum(-1, keepdims=True) @ value
        joined = product(heads.transpose(1, 0, 2).reshape(len(tokens), -1), layer.joined)
        tokens = normalized(tokens + joined, layer.attention_norm)
        inner = product(tokens, layer.widened)
        inner = inner * (1 + erf(inner / np.sqrt(2))) / 2
        tokens = normalized(tokens + product(inner, layer.narrowed), layer.norm)
    return tokens


def product(tokens, linear):
    return tokens @ linear.weights.T.astype(np.float64) + linear.bias


def normalized(tokens, norm):
    apart = tokens - tokens.mean(-1, keepdims=True)
    return apart / np.sqrt((apart**2).mean(-1, keepdims=True) + SIZE.epsilon) * norm.factors + norm.bias


@pytest.mark.parametrize("tokens", [1, 2, 3, 7, 8, 9, 31, 32, 33, LONGEST])
def test_a_text_of_any_length_is_encoded_as_without_rounding(encoder, layers, tokens):
    """A token's neighbours in a tile, and the padding of the last tile, must leave no trace."""
    np.testing.assert_allclose(encoded(encoder, text(tokens)), expected(layers, text(tokens)), atol=0.01)


def test_large_values_do_not_overflow(instructions, layers):
    """The sums of 128 products of the largest integers just fit into 32 bits."""
    size = EncoderSize(width=32, heads=1, inner=1536, epsilon=1e-12)
    ones = {inputs: np.ones((1536, inputs), dtype=np.float32) for inputs in (32, 1536)}
    zeros = np.zeros(1536, dtype=np.float32)
    none = [Linear(0 * ones[32][:outputs], zeros[:outputs]) for outputs in (96, 32)]
    norm = Norm(ones[32][0], zeros[:32])
    narrowed = Linear(ones[1536][:32] * np.linspace(-1, 1, 32, dtype=np.float32)[:, None], zeros[:32])
    layer = Layer(*none, norm, Linear(ones[32] * 0, zeros + 3), narrowed, norm)

    tokens = np.random.default_rng(0).normal(0, 1, (5, 32)).astype(np.float32)
    Encoder(size, norm, [layer], 5, instructions)(tokens)

    # Each output adds 1,536 times its weight: the text's own values hardly count.
    ramp = np.linspace(-1, 1, 32)
    np.testing.assert_allclose(tokens, np.tile(ramp / ramp.std(), (5, 1)), atol=0.01)


def test_a_text_has_the_same_vectors_whatever_was_encoded_before(encoder):
    alone = encoded(encoder, text(9))
    encoded(encoder, text(LONGEST) * 1e6)

    assert np.array_equal(encoded(encoder, text(9)), alone)


def test_threads_do_not_share_memory(encoder):
    lengths = list(range(1, LONGEST)) * 3
    alone = {length: encoded(encoder, text(length)) for length in set(lengths)}

    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda length: encoded(encoder, text(length)), lengths))

    assert all(np.array_equal(got, alone[length]) for got, length in zip(together, lengths, strict=True))


@pytest.mark.parametrize(
    ("tokens", "error"),
    [
        (np.zeros((0, 64), np.float32), "0 tokens; there are at least 1 and at most 70"),
        (np.zeros((71, 64), np.float32), "71 tokens; there are at least 1 and at most 70"),
        (np.zeros((4, 63), np.float32), r"the shape \(4, 63\), not \(tokens, 64\)"),
        (np.zeros(64, np.float32), r"the shape \(64,\), not \(tokens, 64\)"),
    ],
)
def test_a_text_of_another_size_is_refused(encoder, tokens, error):
    with pytest.raises(ValueError, match=error):
        encoder(tokens)


@pytest.mark.parametrize("tokens", [np.zeros((4, 64)), np.zeros((64, 4), np.float32).T])
def test_an_array_of_another_type_or_with_gaps_is_refused(encoder, tokens):
    import ctypes

    with pytest.raises(ctypes.ArgumentError):
        encoder(tokens)


@pytest.mark.parametrize(
    ("size", "error"),
    [
        (EncoderSize(64, 2, 128, 1e-12), "the library refuses 2 layers of .* inner=128"),
        (EncoderSize(64, 4, 160, 1e-12), "the library refuses 2 layers of .* heads=4"),
    ],
)
def test_sizes_that_do_not_fit_the_arrays_are_refused(instructions, layers, size, error):
    with pytest.raises(ValueError, match=error):
        Encoder(size, NORM, layers, LONGEST, instructions)


def test_weights_that_are_not_finite_are_refused(instructions, layers):
    """Rounded, they would be ordinary numbers, and the vectors wrong without a word."""
    broken = layers[0].widened.weights.copy()
    broken[3, 5] = np.nan
    layer = layers[0]._replace(widened=Linear(broken, layers[0].widened.bias))

    with pytest.raises(ValueError, match="not finite"):
        Encoder(SIZE, NORM, [layer], LONGEST, instructions)


def test_the_sizes_that_run_are_multiples_of_two_registers():
    assert SIZE.runs
    assert not EncoderSize(96, 2, 160, 1e-12).runs  # 48 values a head
    assert not EncoderSize(64, 2, 150, 1e-12).runs


@pytest.mark.timeout(300 + float(SECONDS))
@pytest.mark.slow
def test_sanitizers_find_nothing_at_any_size(instructions, tmp_path):
    """The first inputs are the same at every run; `make fuzz SECONDS=600` goes on for that time."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc")
    checks = ["-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    sources = Path(knowledgepulse_bert.__file__).parent
    program = Path(__file__).with_name("fuzz_encoder.c")
    command = [compiler, "-std=c11", "-O1", "-g", *checks, f"-march={MARCH[instructions]}", f"-I{sources}"]
    subprocess.run([*command, program, "-o", tmp_path / "fuzz"], check=True)

    ran = subprocess.run([tmp_path / "fuzz", "1", SECONDS], check=False, capture_output=True, text=True)

    assert ran.returncode == 0, ran.stderr[-3000:]
