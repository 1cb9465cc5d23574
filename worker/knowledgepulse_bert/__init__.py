"""The layers of a BERT model in 13-bit integers, for processors that multiply these faster than floats.

It knows neither models' files nor tokens: it takes arrays and gives arrays. ``encoder.c`` computes, compiled
once for each set of instructions; ``encoder.py`` checks and packs.
"""

from knowledgepulse_bert.encoder import (
    Encoder,
    EncoderSize,
    Instructions,
    Layer,
    Linear,
    Norm,
    processor_flags,
    supported,
)

__all__ = [
    "Encoder",
    "EncoderSize",
    "Instructions",
    "Layer",
    "Linear",
    "Norm",
    "processor_flags",
    "supported",
]
