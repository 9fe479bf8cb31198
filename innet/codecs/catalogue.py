"""The registered parts and the codecs that have names.

Another distribution adds a part by an entry point in the group "innet.selectors",
"innet.quantisers", "innet.carriers" or "innet.feedback", and a preset in "innet.codecs".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from innet.codecs.parts import Carrier, Feedback, Quantiser, Selector
from innet.registry import Registry

SELECTORS: Registry[type[Selector[Any]]] = Registry("selector", "innet.selectors")
SELECTORS.register("adacomp", "innet.codecs.selectors.adacomp:AdaComp")
SELECTORS.register("all", "innet.codecs.selectors.everything:All")
SELECTORS.register("gs-sgd", "innet.codecs.selectors.gs_sgd:GsSgd")
SELECTORS.register("gtopk", "innet.codecs.selectors.gtopk:GTopK")
SELECTORS.register("powersgd", "innet.codecs.selectors.powersgd:PowerSgd")
SELECTORS.register("sampled", "innet.codecs.selectors.sampled:Sampled")
SELECTORS.register("sidco-e", "innet.codecs.selectors.sidco:SidcoExponential")
SELECTORS.register("sidco-gp", "innet.codecs.selectors.sidco:SidcoGamma")
SELECTORS.register("sidco-p", "innet.codecs.selectors.sidco:SidcoPareto")
SELECTORS.register("threshold", "innet.codecs.selectors.threshold:Threshold")
SELECTORS.register("scalecom", "innet.codecs.selectors.scalecom:ScaleCom")
SELECTORS.register("sketched-sgd", "innet.codecs.selectors.sketched_sgd:SketchedSgd")
SELECTORS.register("topk", "innet.codecs.selectors.topk:TopK")

QUANTISERS: Registry[type[Quantiser[Any]]] = Registry("quantiser", "innet.quantisers")
QUANTISERS.register("exact", "innet.codecs.quantisers.exact:Exact")
QUANTISERS.register("fixed", "innet.codecs.quantisers.fixed:Fixed")
QUANTISERS.register("optimistic", "innet.codecs.quantisers.optimistic:Optimistic")
QUANTISERS.register("qsgd", "innet.codecs.quantisers.qsgd:Qsgd")
QUANTISERS.register("thc", "innet.codecs.quantisers.thc:Thc")

CARRIERS: Registry[type[Carrier[Any]]] = Registry("carrier", "innet.carriers")
CARRIERS.register("block", "innet.codecs.carriers.block:Block")
CARRIERS.register("dense", "innet.codecs.carriers.dense:Dense")
CARRIERS.register("lhc", "innet.codecs.carriers.lhc:Lhc")
CARRIERS.register("packed", "innet.codecs.carriers.packed:Packed")
CARRIERS.register("shared", "innet.codecs.carriers.shared:Shared")
CARRIERS.register("union", "innet.codecs.carriers.union:Union")

FEEDBACK: Registry[type[Feedback[Any]]] = Registry("feedback", "innet.feedback")
FEEDBACK.register("lowpass", "innet.codecs.feedback.lowpass:LowPass")
FEEDBACK.register("momentum", "innet.codecs.feedback.momentum:Momentum")
FEEDBACK.register("none", "innet.codecs.feedback.none:NoFeedback")
FEEDBACK.register("residual", "innet.codecs.feedback.residual:Residual")

PARTS: Mapping[str, Registry[Any]] = {
    "selector": SELECTORS,
    "quantiser": QUANTISERS,
    "carrier": CARRIERS,
    "feedback": FEEDBACK,
}

PRESETS: Registry[Mapping[str, Any]] = Registry("codec", "innet.codecs")
PRESETS.register(
    "adacomp",
    {"selector": "adacomp", "quantiser": "fixed", "carrier": "lhc", "feedback": "residual"},
)
PRESETS.register(
    "dense", {"selector": "all", "quantiser": "fixed", "carrier": "dense", "feedback": "none"}
)
PRESETS.register(
    "dgc", {"selector": "sampled", "quantiser": "fixed", "carrier": "lhc", "feedback": "momentum"}
)
PRESETS.register(
    "exact", {"selector": "all", "quantiser": "exact", "carrier": "dense", "feedback": "none"}
)
PRESETS.register(
    "gs-sgd",
    {"selector": "gs-sgd", "quantiser": "fixed", "carrier": "shared", "feedback": "residual"},
)
PRESETS.register(
    "gtopk", {"selector": "gtopk", "quantiser": "fixed", "carrier": "lhc", "feedback": "residual"}
)
PRESETS.register(
    "lhc", {"selector": "all", "quantiser": "fixed", "carrier": "lhc", "feedback": "none"}
)
PRESETS.register(
    "powersgd",
    {"selector": "powersgd", "quantiser": "fixed", "carrier": "shared", "feedback": "residual"},
)
PRESETS.register(
    "qsgd", {"selector": "all", "quantiser": "qsgd", "carrier": "packed", "feedback": "none"}
)
PRESETS.register(
    "scalecom",
    {"selector": "scalecom", "quantiser": "fixed", "carrier": "shared", "feedback": "lowpass"},
)
PRESETS.register(
    "sketched-sgd",
    {
        "selector": "sketched-sgd",
        "quantiser": "fixed",
        "carrier": "shared",
        "feedback": "momentum",
    },
)
PRESETS.register(
    "thc", {"selector": "all", "quantiser": "thc", "carrier": "packed", "feedback": "residual"}
)
PRESETS.register(
    "topk", {"selector": "topk", "quantiser": "fixed", "carrier": "lhc", "feedback": "residual"}
)
PRESETS.register(
    "threshold",
    {"selector": "threshold", "quantiser": "fixed", "carrier": "lhc", "feedback": "residual"},
)
for _fit in ("sidco-e", "sidco-gp", "sidco-p"):
    PRESETS.register(
        _fit, {"selector": _fit, "quantiser": "fixed", "carrier": "lhc", "feedback": "residual"}
    )
