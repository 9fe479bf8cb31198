"""Codecs: float32 gradients to int32 words that a switch can sum, and back.

    codec = build_codec("topk")                                   # one for each worker
    codec = build_codec({"preset": "topk", "selector": {"ratio": 0.05}})
    codec = build_codec({"selector": {"name": "topk", "k": 100}, "carrier": "dense"})

A codec is composed of a selector (which coordinates), a quantizer (how floats become integers), a
carrier (how integers become words) and an error feedback (what happens to the rest). Each part is a
file of the directory of its kind and is registered in ``innet.codecs.presets``. ``Codec.exchange``
runs one all-reduce without doing any I/O; ``innet.allreduce.collective`` connects it to a network.
"""

from __future__ import annotations

from innet.codecs.build import CodecSpec, build_codec
from innet.codecs.checks import check_floats, check_gradient, check_seed
from innet.codecs.codec import Codec, ExchangeOutcome, SumOptions
from innet.codecs.layers import ModelLayers
from innet.codecs.parts import Capabilities
from innet.codecs.presets import CARRIERS, ERROR_FEEDBACK, PARTS, PRESETS, QUANTIZERS, SELECTORS

__all__ = [
    "CARRIERS",
    "ERROR_FEEDBACK",
    "PARTS",
    "PRESETS",
    "QUANTIZERS",
    "SELECTORS",
    "Capabilities",
    "Codec",
    "CodecSpec",
    "ExchangeOutcome",
    "ModelLayers",
    "SumOptions",
    "build_codec",
    "check_floats",
    "check_gradient",
    "check_seed",
]
