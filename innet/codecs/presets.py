"""The registered parts and the codecs that have names.

Another distribution adds a part by an entry point in the group "innet.selectors",
"innet.quantizers", "innet.carriers" or "innet.feedback", and a preset in "innet.codecs".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from innet.codecs.parts import Carrier, Feedback, Quantizer, Selector
from innet.core.registry import Registry

SELECTORS: Registry[type[Selector[Any]]] = Registry("selector", "innet.selectors")
SELECTORS.register("adacomp", "innet.codecs.selectors.adacomp:AdaComp")
SELECTORS.register("all", "innet.codecs.selectors.all:All")
SELECTORS.register("gs-sgd", "innet.codecs.selectors.gs_sgd:GsSgd")
SELECTORS.register("gtopk", "innet.codecs.selectors.gtopk:GTopK")
SELECTORS.register("powersgd", "innet.codecs.selectors.powersgd:PowerSgd")
SELECTORS.register("sampled", "innet.codecs.selectors.sampled_topk:Sampled")
SELECTORS.register("sidco-e", "innet.codecs.selectors.sidco:SidcoExponential")
SELECTORS.register("sidco-gp", "innet.codecs.selectors.sidco:SidcoGamma")
SELECTORS.register("sidco-p", "innet.codecs.selectors.sidco:SidcoPareto")
SELECTORS.register("threshold", "innet.codecs.selectors.threshold:Threshold")
SELECTORS.register("scalecom", "innet.codecs.selectors.scalecom:ScaleCom")
SELECTORS.register("sketched-sgd", "innet.codecs.selectors.sketched_sgd:SketchedSgd")
SELECTORS.register("topk", "innet.codecs.selectors.topk:TopK")

QUANTIZERS: Registry[type[Quantizer[Any]]] = Registry("quantizer", "innet.quantizers")
QUANTIZERS.register("exact", "innet.codecs.quantizers.exact:Exact")
QUANTIZERS.register("fixed", "innet.codecs.quantizers.fixed:Fixed")
QUANTIZERS.register("optimistic", "innet.codecs.quantizers.optimistic:Optimistic")
QUANTIZERS.register("qsgd", "innet.codecs.quantizers.qsgd:Qsgd")
QUANTIZERS.register("thc", "innet.codecs.quantizers.thc:Thc")

CARRIERS: Registry[type[Carrier[Any]]] = Registry("carrier", "innet.carriers")
CARRIERS.register("block", "innet.codecs.carriers.block:Block")
CARRIERS.register("dense", "innet.codecs.carriers.dense:Dense")
CARRIERS.register("lhc", "innet.codecs.carriers.lhc:Lhc")
CARRIERS.register("packed", "innet.codecs.carriers.packed:Packed")
CARRIERS.register("shared", "innet.codecs.carriers.shared:Shared")
CARRIERS.register("union", "innet.codecs.carriers.union:Union")

FEEDBACK: Registry[type[Feedback[Any]]] = Registry("feedback", "innet.feedback")
FEEDBACK.register("lowpass", "innet.codecs.error_feedback.lowpass:LowPass")
FEEDBACK.register("momentum", "innet.codecs.error_feedback.momentum:Momentum")
FEEDBACK.register("none", "innet.codecs.error_feedback.none:NoFeedback")
FEEDBACK.register("residual", "innet.codecs.error_feedback.residual:Residual")

PARTS: Mapping[str, Registry[Any]] = {
    "selector": SELECTORS,
    "quantizer": QUANTIZERS,
    "carrier": CARRIERS,
    "feedback": FEEDBACK,
}

PRESETS: Registry[Mapping[str, Any]] = Registry("codec", "innet.codecs")
PRESETS.register(
    "adacomp",
    {"selector": "adacomp", "quantizer": "fixed", "carrier": "lhc", "feedback": "residual"},
)
PRESETS.register(
    "dense", {"selector": "all", "quantizer": "fixed", "carrier": "dense", "feedback": "none"}
)
PRESETS.register(
    "dgc", {"selector": "sampled", "quantizer": "fixed", "carrier": "lhc", "feedback": "momentum"}
)
PRESETS.register(
    "exact", {"selector": "all", "quantizer": "exact", "carrier": "dense", "feedback": "none"}
)
PRESETS.register(
    "gs-sgd",
    {"selector": "gs-sgd", "quantizer": "fixed", "carrier": "shared", "feedback": "residual"},
)
PRESETS.register(
    "gtopk", {"selector": "gtopk", "quantizer": "fixed", "carrier": "lhc", "feedback": "residual"}
)
PRESETS.register(
    "lhc", {"selector": "all", "quantizer": "fixed", "carrier": "lhc", "feedback": "none"}
)
PRESETS.register(
    "powersgd",
    {"selector": "powersgd", "quantizer": "fixed", "carrier": "shared", "feedback": "residual"},
)
PRESETS.register(
    "qsgd", {"selector": "all", "quantizer": "qsgd", "carrier": "packed", "feedback": "none"}
)
PRESETS.register(
    "scalecom",
    {"selector": "scalecom", "quantizer": "fixed", "carrier": "shared", "feedback": "lowpass"},
)
PRESETS.register(
    "sketched-sgd",
    {
        "selector": "sketched-sgd",
        "quantizer": "fixed",
        "carrier": "shared",
        "feedback": "momentum",
    },
)
PRESETS.register(
    "thc", {"selector": "all", "quantizer": "thc", "carrier": "packed", "feedback": "residual"}
)
PRESETS.register(
    "topk", {"selector": "topk", "quantizer": "fixed", "carrier": "lhc", "feedback": "residual"}
)
PRESETS.register(
    "threshold",
    {"selector": "threshold", "quantizer": "fixed", "carrier": "lhc", "feedback": "residual"},
)
for _fit in ("sidco-e", "sidco-gp", "sidco-p"):
    PRESETS.register(
        _fit, {"selector": _fit, "quantizer": "fixed", "carrier": "lhc", "feedback": "residual"}
    )
