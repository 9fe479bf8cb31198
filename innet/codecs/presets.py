"""The registered parts and the codecs that have names.

Another distribution adds a part by an entry point in the group "innet.selectors",
"innet.quantizers", "innet.carriers" or "innet.error_feedback", and a preset in "innet.codecs".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from innet.codecs.parts import Carrier, ErrorFeedback, Quantizer, Selector
from innet.core.registry import Registry

SELECTORS: Registry[type[Selector[Any]]] = Registry("selector", "innet.selectors")
"""Selectors by name: which elements are sent. Entry points: "innet.selectors"."""
SELECTORS.register("adacomp", "innet.codecs.selectors.adacomp:AdaComp")
SELECTORS.register("all", "innet.codecs.selectors.all:All")
SELECTORS.register("gaussiank", "innet.codecs.selectors.gaussiank:GaussianK")
SELECTORS.register("gs-sgd", "innet.codecs.selectors.gs_sgd:GsSgd")
SELECTORS.register("gtopk", "innet.codecs.selectors.gtopk:GTopK")
SELECTORS.register("powersgd", "innet.codecs.selectors.powersgd:PowerSgd")
SELECTORS.register("randomk", "innet.codecs.selectors.randomk:RandomK")
SELECTORS.register("redsync", "innet.codecs.selectors.redsync:RedSync")
SELECTORS.register("sampled", "innet.codecs.selectors.sampled_topk:Sampled")
SELECTORS.register("sidco-e", "innet.codecs.selectors.sidco:SidcoExponential")
SELECTORS.register("sidco-gp", "innet.codecs.selectors.sidco:SidcoGamma")
SELECTORS.register("sidco-p", "innet.codecs.selectors.sidco:SidcoPareto")
SELECTORS.register("threshold", "innet.codecs.selectors.threshold:Threshold")
SELECTORS.register("scalecom", "innet.codecs.selectors.scalecom:ScaleCom")
SELECTORS.register("sketched-sgd", "innet.codecs.selectors.sketched_sgd:SketchedSgd")
SELECTORS.register("topk", "innet.codecs.selectors.topk:TopK")

QUANTIZERS: Registry[type[Quantizer[Any]]] = Registry("quantizer", "innet.quantizers")
"""Quantizers by name: how floats become integers. Entry points: "innet.quantizers"."""
QUANTIZERS.register("exact", "innet.codecs.quantizers.exact:Exact")
QUANTIZERS.register("fixed", "innet.codecs.quantizers.fixed:Fixed")
QUANTIZERS.register("float", "innet.codecs.quantizers.float_words:FloatWords")
QUANTIZERS.register("format", "innet.codecs.quantizers.formats:Format")
QUANTIZERS.register("optimistic", "innet.codecs.quantizers.optimistic:Optimistic")
QUANTIZERS.register("qsgd", "innet.codecs.quantizers.qsgd:Qsgd")
QUANTIZERS.register("signsgd", "innet.codecs.quantizers.signsgd:SignSgd")
QUANTIZERS.register("thc", "innet.codecs.quantizers.thc:Thc")

CARRIERS: Registry[type[Carrier[Any]]] = Registry("carrier", "innet.carriers")
"""Carriers by name: how integers become words. Entry points: "innet.carriers"."""
CARRIERS.register("block", "innet.codecs.carriers.block:BlockCarrier")
CARRIERS.register("dense", "innet.codecs.carriers.dense:Dense")
CARRIERS.register("lhc", "innet.codecs.carriers.lhc:Lhc")
CARRIERS.register("packed", "innet.codecs.carriers.packed:Packed")
CARRIERS.register("shared", "innet.codecs.carriers.shared:Shared")
CARRIERS.register("union", "innet.codecs.carriers.union:UnionCarrier")

ERROR_FEEDBACK: Registry[type[ErrorFeedback[Any]]] = Registry(
    "error_feedback", "innet.error_feedback"
)
"""Error feedback by name: what happens to the rest. Entry points: "innet.error_feedback"."""
ERROR_FEEDBACK.register("ef21", "innet.codecs.error_feedback.ef21:Ef21")
ERROR_FEEDBACK.register("lowpass", "innet.codecs.error_feedback.lowpass:LowPass")
ERROR_FEEDBACK.register("momentum", "innet.codecs.error_feedback.momentum:Momentum")
ERROR_FEEDBACK.register("none", "innet.codecs.error_feedback.none:NoErrorFeedback")
ERROR_FEEDBACK.register("residual", "innet.codecs.error_feedback.residual:Residual")

PARTS: Mapping[str, Registry[Any]] = {
    "selector": SELECTORS,
    "quantizer": QUANTIZERS,
    "carrier": CARRIERS,
    "error_feedback": ERROR_FEEDBACK,
}
"""The registry of each kind of part: "selector", "quantizer", "carrier", "error_feedback"."""

PRESETS: Registry[Mapping[str, Any]] = Registry("codec", "innet.codecs")
"""Named codecs: the description of each, as a mapping of parts. Entry points: "innet.codecs"."""
_EXACT = {"name": "exact", "block": 32}  # fewest bytes of gradients of ncf; see docs/codecs.md


def _numbers(form: str) -> dict[str, str]:
    return {"name": "format", "format": form}


_BUILT_IN: tuple[tuple[Any, ...], ...] = (
    # name, selector, quantizer, carrier, error feedback, what a worker sends (34 characters)
    ("adacomp", "adacomp", "fixed", "lhc", "residual", "the local maxima in bins"),
    ("bf16", "all", _numbers("bf16"), "packed", "none", "all, as bf16 on a grid"),
    ("dense", "all", "fixed", "dense", "none", "every element, in fixed point"),
    ("dgc", "sampled", "fixed", "lhc", "momentum", "the largest, by a sampled bound"),
    ("ef21", "topk", "fixed", "lhc", "ef21", "the largest changes of a gradient"),
    ("exact", "all", "exact", "dense", "none", "every element, without any loss"),
    ("fp16", "all", _numbers("fp16"), "packed", "none", "all, as fp16 on a grid"),
    ("fp8-e4m3", "all", _numbers("fp8-e4m3"), "packed", "none", "all, as FP8 E4M3, one scale"),
    ("fp8-e5m2", "all", _numbers("fp8-e5m2"), "packed", "none", "all, as FP8 E5M2, one scale"),
    ("fpisa", "all", "float", "dense", "none", "every element, as a float32"),
    ("gaussiank", "gaussiank", "fixed", "lhc", "residual", "the largest: fitted normal"),
    ("gs-sgd", "gs-sgd", "fixed", "shared", "residual", "the largest of the sketched sum"),
    ("gtopk", "gtopk", "fixed", "lhc", "residual", "the largest, then of their sum"),
    ("int8", "all", _numbers("int8"), "packed", "none", "all, as int8, one scale"),
    ("lhc", "all", "fixed", "lhc", "none", "fixed-point non-zeros, in a sketch"),
    ("lhc-exact", "all", _EXACT, "lhc", "none", "float32 non-zeros, without loss"),
    ("mxfp4", "all", _numbers("mxfp4"), "packed", "none", "all, as FP4, scales by 32"),
    (
        "mxfp6-e2m3",
        "all",
        _numbers("mxfp6-e2m3"),
        "packed",
        "none",
        "all, as FP6 E2M3, scales by 32",
    ),
    (
        "mxfp6-e3m2",
        "all",
        _numbers("mxfp6-e3m2"),
        "packed",
        "none",
        "all, as FP6 E3M2, scales by 32",
    ),
    (
        "mxfp8-e4m3",
        "all",
        _numbers("mxfp8-e4m3"),
        "packed",
        "none",
        "all, as FP8 E4M3, scales by 32",
    ),
    (
        "mxfp8-e5m2",
        "all",
        _numbers("mxfp8-e5m2"),
        "packed",
        "none",
        "all, as FP8 E5M2, scales by 32",
    ),
    ("mxint8", "all", _numbers("mxint8"), "packed", "none", "all, as MXINT8, scales by 32"),
    ("powersgd", "powersgd", "fixed", "shared", "residual", "two thin matrices for each layer"),
    ("qsgd", "all", "qsgd", "packed", "none", "every element, in few levels"),
    ("randomk", "randomk", "fixed", "shared", "residual", "random elements, the same of all"),
    ("redsync", "redsync", "fixed", "lhc", "residual", "the largest: searched threshold"),
    ("scalecom", "scalecom", "fixed", "shared", "lowpass", "what one worker chooses for all"),
    ("sidco-e", "sidco-e", "fixed", "lhc", "residual", "the largest: fitted exponential"),
    ("sidco-gp", "sidco-gp", "fixed", "lhc", "residual", "the largest: fitted gamma, Pareto"),
    ("sidco-p", "sidco-p", "fixed", "lhc", "residual", "the largest: fitted Pareto"),
    ("signsgd", "all", "signsgd", "packed", "none", "signs, for a majority vote"),
    ("sketched-sgd", "sketched-sgd", "fixed", "shared", "momentum", "as gs-sgd, with momentum"),
    ("thc", "all", "thc", "packed", "residual", "all, rotated, in a table's levels"),
    ("threshold", "threshold", "fixed", "lhc", "residual", "what reaches a threshold"),
    ("topk", "topk", "fixed", "lhc", "residual", "the largest 1 %"),
)
BUILT_IN: Mapping[str, Mapping[str, Any]] = {
    name: dict(zip(PARTS, parts, strict=True)) for name, *parts, _ in _BUILT_IN
}
"""The codecs that come with innet, by name. A line of the table above adds one."""
DESCRIPTIONS: Mapping[str, str] = {name: description for name, *_, description in _BUILT_IN}
"""What ``innet codecs`` says that a worker sends. Their papers are in innet.claims."""
for _name, _preset in BUILT_IN.items():
    PRESETS.register(_name, _preset)
