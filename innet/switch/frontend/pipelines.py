"""Tables, conditionals and pipelines of BMv2 JSON."""

from __future__ import annotations

from innet.switch import ir
from innet.switch.frontend.expressions import ExpressionLoader
from innet.switch.frontend.json_tree import Index, JsonTree, ProgramNames, unknown_name
from innet.switch.frontend.parser import calculation_inputs

_MATCH_KINDS = {kind.value: kind for kind in ir.MatchKind}
_TABLE_KINDS = {kind.value: kind for kind in ir.TableKind}


class PipelineLoader:
    """Builds everything in ``pipelines`` from the actions, which are loaded before.

    ``action_ids`` maps the JSON's ids of actions to indices.
    """

    def __init__(
        self, root: JsonTree, names: ProgramNames, actions: tuple[ir.Action, ...], action_ids: Index
    ) -> None:
        self.names = names
        self.actions = actions
        self.action_ids = action_ids
        self.trees = list(root["pipelines"])
        for tree in self.trees:
            names.tables.add_all(tree.each("tables"))
            names.conditionals.add_all(tree.each("conditionals"))
            names.action_calls.add_all(tree.each("action_calls"))
            names.action_profiles.add_all(tree.each("action_profiles"))
        for tree in self._with_own_profile():
            names.action_profiles.add_named(tree["act_prof_name"])
        self.direct_counters = {
            tree["binding"].string(): names.counters.of(tree["name"])
            for tree in root.each("counter_arrays")
            if tree.flag("is_direct", default=False)
        }

    def node(self, tree: JsonTree | None) -> ir.Node | None:
        """The control-flow node named at ``tree``; None is the end of the pipeline."""
        if tree is None:
            return None
        name = tree.string()
        for kind, index in (
            (ir.NodeKind.TABLE, self.names.tables),
            (ir.NodeKind.CONDITIONAL, self.names.conditionals),
            (ir.NodeKind.ACTION_CALL, self.names.action_calls),
        ):
            if name in index.by_name:
                return ir.Node(kind, index.by_name[name])
        known = (*self.names.tables.by_name, *self.names.conditionals.by_name)
        raise unknown_name("table or conditional", name, known, tree)

    def pipeline(self, name: str, root: JsonTree) -> ir.Pipeline:
        """The pipeline called ``name``, which simple_switch needs."""
        for tree in self.trees:
            if tree["name"].string() == name:
                return ir.Pipeline(name, self.node(tree.find("init_table")))
        known = [tree["name"].string() for tree in self.trees]
        raise unknown_name("pipeline", name, known, root["pipelines"])

    def conditionals(self) -> tuple[ir.Conditional, ...]:
        make = ExpressionLoader(self.names)
        return tuple(
            ir.Conditional(
                tree["name"].string(),
                make.boolean(tree["expression"]),
                self.node(tree.find("true_next")),
                self.node(tree.find("false_next")),
            )
            for pipeline in self.trees
            for tree in pipeline.each("conditionals")
        )

    def action_calls(self) -> tuple[ir.ActionCall, ...]:
        return tuple(
            ir.ActionCall(
                tree["name"].string(),
                self.action_ids.of_id(tree["action_id"]),
                self.node(tree.find("next_node")),
            )
            for pipeline in self.trees
            for tree in pipeline.each("action_calls")
        )

    def action_profiles(self) -> tuple[ir.ActionProfile, ...]:
        listed = [
            self._action_profile(tree, tree["name"].string())
            for pipeline in self.trees
            for tree in pipeline.each("action_profiles")
        ]
        own = self._with_own_profile()
        return (*listed, *(self._action_profile(t, t["act_prof_name"].string()) for t in own))

    def _with_own_profile(self) -> list[JsonTree]:
        """The tables that describe their action profile themselves, as JSON before 2.5 does."""
        tables = [tree for pipeline in self.trees for tree in pipeline.each("tables")]
        return [
            tree
            for tree in tables
            if tree.find("action_profile") is None and tree.find("act_prof_name") is not None
        ]

    def _action_profile(self, tree: JsonTree, name: str) -> ir.ActionProfile:
        selector = tree.find("selector")
        return ir.ActionProfile(
            name,
            tree["max_size"].size(),
            None
            if selector is None
            else ir.Calculation(
                name,
                selector["algo"].string(),
                calculation_inputs(selector.array("input"), self.names),
            ),
        )

    def tables(self) -> tuple[ir.Table, ...]:
        return tuple(
            self._table(tree) for pipeline in self.trees for tree in pipeline.each("tables")
        )

    def _table(self, tree: JsonTree) -> ir.Table:
        name = tree["name"].string()
        kind = tree["type"].string()
        if kind not in _TABLE_KINDS:
            raise tree["type"].wrong(f"one of {', '.join(_TABLE_KINDS)}")
        keys = tuple(self._key(part) for part in tree.each("key"))
        actions = self._actions(tree)
        follow = tree["next_tables"]
        by_hit = follow.holds("__HIT__") or follow.holds("__MISS__")
        default, default_tree = self._default(tree, actions), tree.find("default_entry")
        entries = tree.find("entries")
        profile = tree.find("action_profile")
        if profile is None:
            profile = tree.find("act_prof_name")
        meter = tree.find("direct_meters")
        return ir.Table(
            name=name,
            kind=_TABLE_KINDS[kind],
            match=self._match_kind(tree),
            keys=keys,
            max_size=tree["max_size"].size() if entries is None else len(entries),
            actions=actions,
            next=()
            if by_hit
            else tuple(self._follow(follow, self.actions[action].name) for action in actions),
            by_hit=by_hit,
            hit=self._follow(follow, "__HIT__") if by_hit else None,
            miss=self._follow(follow, "__MISS__") if by_hit else None,
            base_default_next=self.node(tree.find("base_default_next")),
            default=default,
            default_action_const=default_tree is not None
            and default_tree.flag("action_const", default=False),
            default_entry_const=default_tree is not None
            and default_tree.flag("action_entry_const", default=False),
            entries=() if entries is None else self._entries(entries, keys, actions),
            immutable=entries is not None,
            with_counters=tree.flag("with_counters", default=False),
            counter=self.direct_counters.get(name),
            meter=None if meter is None else self.names.meters.of(meter),
            support_timeout=tree.flag("support_timeout", default=False),
            action_profile=None if profile is None else self.names.action_profiles.of(profile),
        )

    def _match_kind(self, tree: JsonTree) -> ir.MatchKind:
        kind = tree["match_type"].string()
        if kind not in _MATCH_KINDS or kind == "valid":
            raise tree["match_type"].wrong("'exact', 'lpm', 'ternary' or 'range'")
        return _MATCH_KINDS[kind]

    def _follow(self, follow: JsonTree, key: str) -> ir.Node | None:
        follow[key]  # the member must be there, though it may be null
        return self.node(follow.find(key))

    def _key(self, tree: JsonTree) -> ir.TableKey:
        kind = tree["match_type"].string()
        if kind not in _MATCH_KINDS:
            raise tree["match_type"].wrong(f"one of {', '.join(_MATCH_KINDS)}")
        target = tree["target"]
        if kind == "valid":
            field = ir.FieldRef(self.names.headers.of(target), ir.VALID)
            default_name = target.string()
        else:
            field = self.names.field(target)
            default_name = f"{target[0].value}.{target[1].value}"
        mask, name = tree.find("mask"), tree.find("name")
        return ir.TableKey(
            _MATCH_KINDS[kind],
            field,
            self.names.width(field),
            None if mask is None else mask.hexadecimal(),
            default_name if name is None else name.string(),
        )

    def _actions(self, tree: JsonTree) -> tuple[int, ...]:
        if tree.find("action_ids") is not None:
            return tuple(self.action_ids.of_id(each) for each in tree["action_ids"])
        by_name = {action.name: i for i, action in reversed(list(enumerate(self.actions)))}
        for each in tree.each("actions"):
            if each.string() not in by_name:
                raise unknown_name("action", each.string(), by_name, each)
        return tuple(by_name[each.string()] for each in tree.each("actions"))

    def _action_entry(self, tree: JsonTree, allowed: tuple[int, ...]) -> ir.ActionEntry:
        action = self.action_ids.of_id(tree["action_id"])
        if action not in allowed:
            raise tree["action_id"].wrong("the id of one of the table's actions")
        parameters = self.actions[action].parameters
        arguments = tree["action_data"].exactly(len(parameters))
        pairs = zip(arguments, parameters, strict=True)
        return ir.ActionEntry(action, tuple(_argument(each, of) for each, of in pairs))

    def _default(self, tree: JsonTree, actions: tuple[int, ...]) -> ir.ActionEntry | None:
        found = tree.find("default_entry")
        return None if found is None else self._action_entry(found, actions)

    def _entries(
        self, trees: JsonTree, keys: tuple[ir.TableKey, ...], actions: tuple[int, ...]
    ) -> tuple[ir.TableEntry, ...]:
        entries = []
        for tree in trees:
            parts = tree["match_key"].exactly(len(keys))
            entries.append(
                ir.TableEntry(
                    tuple(_match(part, key) for part, key in zip(parts, keys, strict=True)),
                    self._action_entry(tree["action_entry"], actions),
                    0 if tree.find("priority") is None else tree["priority"].integer(),
                )
            )
        return tuple(entries)


def _argument(tree: JsonTree, parameter: ir.Parameter) -> int:
    """An argument that the program gives. p4c writes negative numbers with their sign."""
    value = tree.hexadecimal()
    if not -1 << parameter.width <= value < 1 << parameter.width:
        raise tree.wrong(f"a number of {parameter.width} bits")
    return value


def _match(tree: JsonTree, key: ir.TableKey) -> ir.Match:
    if tree["match_type"].string() != key.match.value:
        raise tree["match_type"].wrong(f"{key.match.value!r}, as the table's key has it")
    if key.match is ir.MatchKind.VALID:
        return ir.ExactMatch(int(tree["key"].boolean()))
    if key.match is ir.MatchKind.RANGE:
        low, high = _bits(tree["start"], key), _bits(tree["end"], key)
        if low > high:
            raise tree["end"].wrong(f"a number that is not below the start, {low}")
        return ir.RangeMatch(low, high)
    value = _bits(tree["key"], key)
    if key.match is ir.MatchKind.LPM:
        return ir.LpmMatch(value, tree["prefix_length"].integer(0, key.width))
    if key.match is ir.MatchKind.TERNARY:
        return ir.TernaryMatch(value, _bits(tree["mask"], key))
    return ir.ExactMatch(value)


def _bits(tree: JsonTree, key: ir.TableKey) -> int:
    """A number that fits the key. p4c may pad a negative constant with ones to whole bytes."""
    number = tree.hexadecimal()
    padded = (key.width + 7) // 8 * 8
    if number >> padded not in (0, -1):
        raise tree.wrong(f"a number of at most {padded} bits")
    return number & ((1 << key.width) - 1)
