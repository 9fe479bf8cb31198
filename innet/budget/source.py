"""Where in the P4 source things stand, from the ``source_info`` that p4c leaves in its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Document = Mapping[str, Any]


class Source:
    """Places by the index or the name of things; "" where the JSON does not say."""

    def __init__(self, document: Document) -> None:
        self._actions = [
            (_place(action), [_place(each) for each in action.get("primitives", ())])
            for action in document.get("actions", ())
        ]
        self._nodes: dict[str, str] = {}
        for pipeline in document.get("pipelines", ()):
            for kind in ("tables", "conditionals", "action_calls"):
                for each in pipeline.get(kind) or ():
                    self._nodes[each["name"]] = _place(each)
        self._registers = {
            each["name"]: _place(each) for each in document.get("register_arrays", ())
        }

    def primitive(self, action: int, position: int) -> str:
        """Of a statement of an action."""
        whole, primitives = self._actions[action]
        return primitives[position] or whole if position < len(primitives) else whole

    def node(self, name: str) -> str:
        """Of a table, condition or call."""
        return self._nodes.get(name, "")

    def register(self, name: str) -> str:
        """Of a register array's declaration."""
        return self._registers.get(name, "")


def _place(item: Any) -> str:
    found = item.get("source_info") if isinstance(item, Mapping) else None
    if not isinstance(found, Mapping) or "filename" not in found:
        return ""
    return f"{found['filename']}:{found.get('line', '?')}"
