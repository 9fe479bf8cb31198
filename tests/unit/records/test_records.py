"""Reports and records: what is derived, what survives a file, what is refused."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import ValidationError
from support.records import a_record, a_report, a_run

from innet.core.errors import InputError
from innet.records import (
    DEMO,
    TRAIN,
    Finding,
    Machine,
    Measurement,
    NetworkRun,
    Point,
    PredictionRecord,
    Record,
    Report,
    ReproductionRecord,
    Run,
    Seconds,
    Step,
    ThroughputRecord,
    TrainingRecord,
    merge,
    schema,
)


class TestReport:
    def test_compression_is_dense_over_sent(self) -> None:
        assert a_report(bytes_sent=250, bytes_dense=1000).compression == 4.0

    def test_nothing_sent_compresses_nothing(self) -> None:
        assert a_report(elements=0, bytes_sent=0, bytes_dense=0).compression == 1.0

    def test_json_has_the_promised_fields_and_reads_back(self) -> None:
        report = a_report(details={"peel_rounds": 7})
        document = json.loads(report.model_dump_json())
        promised = (
            "exact workers codec program engine transport elements rounds packets_sent "
            "packets_received bytes_sent bytes_dense compression retransmissions seconds "
            "max_abs_error"
        )
        assert set(promised.split()) <= document.keys()
        assert {"encode", "network", "decode", "total"} <= document["seconds"].keys()
        assert Report.model_validate(document) == report

    def test_a_misspelt_field_is_refused(self) -> None:
        with pytest.raises(ValidationError, match="packets_send"):
            Report.model_validate(a_report().model_dump() | {"packets_send": 1})

    def test_is_frozen(self) -> None:
        with pytest.raises(ValidationError, match="frozen"):
            a_report().workers = 3  # type: ignore[misc]


class TestRun:
    def test_step_takes_over_what_the_report_says(self) -> None:
        report = a_report(bytes_sent=10, packets_sent=20, switch_packets=30, exact=True)
        step = Step.of(1, 0.5, None, report)
        assert (step.bytes_sent, step.packets_sent, step.switch_packets) == (10, 20, 30)
        assert step.seconds == report.seconds
        assert step.max_abs_error == report.max_abs_error
        assert Step.of(1, 0.5, None, a_report(vnmse=0.25)).vnmse == 0.25
        assert step.exact is True

    def test_step_without_report_sent_nothing(self) -> None:
        step = Step.of(1, 0.5, 0.9, None)
        assert (step.exact, step.bytes_sent, step.seconds) == (None, 0, None)

    def test_totals(self) -> None:
        report = a_report(
            bytes_sent=10, seconds=Seconds(encode=1, network=2, decode=3, total=7, switch=None)
        )
        steps = [
            Step.of(1, 1.0, None, report),
            Step.of(2, 0.5, 0.75, report.model_copy(update={"exact": False})),
            Step.of(3, 0.2, None, None),
        ]
        run = a_run(steps=steps)
        assert run.total("bytes_sent") == 20
        assert run.total_seconds("network") == 4.0
        assert run.total_seconds("switch") == 0.0
        assert run.exact_steps == 1
        assert run.final_score == 0.75
        assert run.summed_by_network
        assert not a_run(steps=steps[2:3], renumber=True).summed_by_network

    def test_rates_that_a_paper_counts(self) -> None:
        bits: list[dict[str, int]] = [{"matrix": 64, "vector": 8}, {"matrix": 16, "vector": 0}]
        steps = [Step(iteration=1, loss=1, counted_bits=each) for each in bits]
        run = a_run(steps=steps, renumber=True).model_copy(
            update={"counted_elements": {"matrix": 10, "vector": 2}}
        )
        assert run.counted_rates() == {"matrix": 2 * 320 / 80, "vector": 2 * 64 / 8}
        assert run.counted_rates(slice(1, 2)) == {"matrix": 320 / 16, "vector": math.inf}
        assert a_run(steps=steps, renumber=True).counted_rates() == {}

    def test_a_gap_in_the_iterations_is_refused(self) -> None:
        with pytest.raises(ValidationError, match="without a gap"):
            Run(
                name="x",
                title="X",
                elements=1,
                wall_seconds=0,
                steps=(Step(iteration=1, loss=1), Step(iteration=3, loss=1)),
            )


class TestFile:
    def test_round_trip(self, tmp_path: Any) -> None:
        record = a_record()
        record.save(tmp_path / "record.json")
        assert TrainingRecord.load(tmp_path / "record.json") == record
        assert TrainingRecord.load(tmp_path / "record.json", DEMO) == record
        assert [path.name for path in tmp_path.iterdir()] == ["record.json"]

    def test_format_and_version_come_first_and_always(self, tmp_path: Any) -> None:
        a_record().save(tmp_path / "record.json")
        document = json.loads((tmp_path / "record.json").read_text())
        assert list(document)[:2] == ["format", "version"]
        assert (document["format"], document["version"]) == ("innet.demo", 7)

    def test_every_field_is_written_whether_it_is_the_default_or_not(self, tmp_path: Any) -> None:
        a_record().save(tmp_path / "record.json")
        document = json.loads((tmp_path / "record.json").read_text())
        assert document["runs"][0]["steps"][0].keys() == Step.model_fields.keys()
        assert document == json.loads(a_record().model_dump_json(round_trip=True))

    def test_time_is_kept_in_utc(self) -> None:
        east = datetime(2030, 1, 1, 5, tzinfo=timezone(timedelta(hours=5)))
        record = a_record(created=east)
        assert record.created.isoformat() == "2030-01-01T00:00:00+00:00"

    def test_time_without_a_zone_is_refused(self) -> None:
        with pytest.raises(ValidationError, match="timezone"):
            a_record(created=datetime(2030, 1, 1))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"version": 8}, "version 8; this innet reads up to version 7. Use a newer innet"),
            ({"version": "1"}, "its version is '1'"),
            ({"version": True}, "its version is True"),
            ({"version": 0}, "its version is 0"),
            ({"format": "innet.other"}, "format 'innet.other'; needed is innet.demo or"),
            ({"format": None}, "it has no format"),
            ({"runs": []}, "damaged record: runs: Value error, a record needs runs"),
            ({"machine": {}}, "damaged record: machine.cpu"),
            ({"surprise": 1}, "damaged record: surprise"),
        ],
    )
    def test_what_is_refused(self, tmp_path: Any, change: dict[str, Any], message: str) -> None:
        path = tmp_path / "record.json"
        a_record().save(path)
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
        with pytest.raises(InputError) as caught:
            TrainingRecord.load(path)
        assert message in str(caught.value)
        assert "record.json" in str(caught.value)

    def test_runs_have_steps_and_names_of_their_own(self) -> None:
        with pytest.raises(ValidationError, match="at least one step"):
            a_run(steps=())
        with pytest.raises(ValidationError, match="each with a unique name"):
            a_record(runs=[a_run(name="a"), a_run(name="a")])

    @pytest.mark.parametrize(
        "content",
        [b"", b"{", b"\xff\xfe", b"[]", b"3", b"null", b"[" * 1_000_000],
        ids=["nothing", "open", "no UTF-8", "list", "number", "null", "nested"],
    )
    def test_what_is_no_record(self, tmp_path: Any, content: bytes) -> None:
        path = tmp_path / "record.json"
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"record\.json is no (JSON|record)"):
            TrainingRecord.load(path)

    def test_the_wrong_experiment(self, tmp_path: Any) -> None:
        a_record().save(tmp_path / "record.json")
        with pytest.raises(InputError, match=r"format 'innet\.demo'; needed is innet\.train"):
            TrainingRecord.load(tmp_path / "record.json", "innet.train")

    def test_no_file_and_no_folder(self, tmp_path: Any) -> None:
        with pytest.raises(InputError, match=r"cannot read .*absent\.json"):
            TrainingRecord.load(tmp_path / "absent.json")
        with pytest.raises(InputError, match=r"cannot write .*record\.json"):
            a_record().save(tmp_path / "absent" / "record.json")

    def test_unknown_run_is_named_with_those_there_are(self) -> None:
        with pytest.raises(InputError, match="no run 'x'; it has plain, dense, topk"):
            a_record().run("x")


def a_network_run() -> NetworkRun:
    counts = {"packets": 8, "bytes": 2832, "dropped": 0, "lost": 0, "retransmissions": 0}
    return NetworkRun.of((0.1,), 10, **counts)


class TestFamily:
    """One loader for all records, and one schema."""

    def every(self) -> list[Record]:
        shared = a_record().model_dump(include={"innet", "created", "machine"})
        point = Point(switch="memory", workers=2, codec="lhc", values_per_packet=64, window=8)
        finding = Finding(claim="c", paper_result="p", setup="s", measured="m")
        return [
            a_record(),
            a_record(format=TRAIN),
            ThroughputRecord(
                **shared, measurements=(Measurement(point=point, reports=(a_report(),)),)
            ),
            ReproductionRecord(
                **shared, codec="lhc", paper="A 2024", findings=(finding,), not_reproduced=("n",)
            ),
            PredictionRecord(
                **shared,
                workers=2,
                jobs=1,
                elements=10,
                window=64,
                idle_seconds=1e-4,
                busy=0.5,
                exact=True,
                mininet=a_network_run(),
                simulated=a_network_run(),
            ),
        ]

    def test_any_record_is_loaded_as_what_it_is(self, tmp_path: Any) -> None:
        for record in self.every():
            record.save(tmp_path / "record.json")
            loaded = Record.load(tmp_path / "record.json")
            assert type(loaded) is type(record)
            assert loaded == record

    def test_a_class_reads_only_its_own(self, tmp_path: Any) -> None:
        a_record().save(tmp_path / "record.json")
        with pytest.raises(InputError, match=r"'innet\.demo'; needed is innet\.throughput"):
            ThroughputRecord.load(tmp_path / "record.json")

    def test_numbers_beyond_json_are_null(self, tmp_path: Any) -> None:
        report = a_report(max_abs_error=math.inf, vnmse=math.inf)
        a_record(runs=[a_run("dense", report=report)], settings={"x": math.inf}).save(
            tmp_path / "record.json"
        )
        loaded = TrainingRecord.load(tmp_path / "record.json")
        step = loaded.runs[0].steps[0]
        assert (step.max_abs_error, step.vnmse) == (None, None)
        assert loaded.settings == {"x": None}

    def test_every_field_in_the_schema_is_described(self) -> None:
        document = schema()
        models = document["$defs"]
        assert {each["$ref"].rpartition("/")[2] for each in document["anyOf"]} == {
            "JobsRecord",
            "PointRecord",
            "PredictionRecord",
            "RecordingRecord",
            "Report",
            "ReproductionRecord",
            "SimulationRecord",
            "SweepRecord",
            "ThroughputRecord",
            "TrafficRecord",
            "TrainingRecord",
        }
        for name, model in models.items():
            assert model["description"], name
            for field, described in model["properties"].items():
                assert described.get("description"), f"{name}.{field}"
        report = models["Report"]["properties"]
        assert report["rounds"]["description"] == (
            "exchanges one after the other that it took; a codec may need several."
        )
        assert report["retransmissions"]["default"] == 0
        assert "compression" in report

    def test_what_is_written_fits_the_schema(self) -> None:
        models = schema()["$defs"]
        for record in self.every():
            document = json.loads(record.model_dump_json())
            assert document.keys() == models[type(record).__name__]["properties"].keys()


class TestOlderVersions:
    def old(self, tmp_path: Any, version: int, document: dict[str, Any]) -> Record:
        path = tmp_path / "old.json"
        path.write_text(json.dumps(document | {"version": version}))
        return Record.load(path)

    def test_version_1_knew_accuracies_only(self, tmp_path: Any) -> None:
        text = a_record().model_dump_json(exclude_defaults=True, round_trip=True)
        document = json.loads(text.replace('"score"', '"accuracy"'))
        loaded = self.old(tmp_path, 1, document)
        assert isinstance(loaded, TrainingRecord)
        for run, expected in zip(loaded.runs, a_record().runs, strict=True):
            assert [step.score for step in run.steps] == [step.score for step in expected.steps]

    def test_times_of_codecs_were_sums_over_the_workers(self, tmp_path: Any) -> None:
        document = json.loads(a_record().model_dump_json(round_trip=True))
        loaded = self.old(tmp_path, 2, document)
        assert isinstance(loaded, TrainingRecord)
        now, then = loaded.run("dense").steps[0].seconds, a_record().run("dense").steps[0].seconds
        assert now is not None
        assert then is not None
        assert (now.encode, now.decode) == (then.encode / 4, then.decode / 4)
        assert (now.network, now.total) == (then.network, then.total)

    def test_version_3_had_no_simulated_time(self, tmp_path: Any) -> None:
        document = json.loads(a_record().model_dump_json(round_trip=True))
        for run in document["runs"]:
            del run["simulated"]
            for step in run["steps"]:
                del step["simulated_seconds"]
        loaded = self.old(tmp_path, 3, document)
        assert loaded == a_record()
        assert isinstance(loaded, TrainingRecord)
        assert loaded.networks == ()

    def test_version_4_did_not_count_as_papers_do(self, tmp_path: Any) -> None:
        document = json.loads(a_record().model_dump_json(round_trip=True))
        for run in document["runs"]:
            del run["counted_elements"]
            for step in run["steps"]:
                del step["counted_bits"]
        loaded = self.old(tmp_path, 4, document)
        assert loaded == a_record()
        assert isinstance(loaded, TrainingRecord)
        assert loaded.version == 7
        assert loaded.runs[0].counted_rates() == {}

    def test_version_6_had_no_vnmse(self, tmp_path: Any) -> None:
        document = json.loads(a_record().model_dump_json(round_trip=True))
        for run in document["runs"]:
            for step in run["steps"]:
                del step["vnmse"], step["vnmse_sent"]
        assert self.old(tmp_path, 6, document) == a_record()

    def test_version_2_had_other_names(self, tmp_path: Any) -> None:
        codec = {"selector": "topk", "quantiser": "fixed", "feedback": "residual"}
        run = a_run("dense").model_copy(update={"settings": {"way": "dense", "codec": codec}})
        document = json.loads(a_record(runs=[run]).model_dump_json(round_trip=True))
        loaded = self.old(tmp_path, 2, document)
        assert isinstance(loaded, TrainingRecord)
        assert loaded.version == 7
        assert loaded.runs[0].settings == {
            "method": "dense",
            "codec": {"selector": "topk", "quantizer": "fixed", "error_feedback": "residual"},
        }

    def test_version_2_of_a_sweep_named_the_transport_fabric(self, tmp_path: Any) -> None:
        sweep = TestFamily().every()[2]
        assert isinstance(sweep, ThroughputRecord)
        text = sweep.model_dump_json(round_trip=True).replace('"transport"', '"fabric"')
        loaded = self.old(tmp_path, 2, json.loads(text))
        assert isinstance(loaded, ThroughputRecord)
        assert loaded.measurements[0].reports[0].transport == "memory"

    def test_version_2_of_a_reproduction_had_no_settings(self, tmp_path: Any) -> None:
        now = TestFamily().every()[3].model_copy(update={"settings": {"quick": True, "seeds": 1}})
        document = json.loads(now.model_dump_json(round_trip=True))
        document |= document.pop("settings")
        (finding,) = document["findings"]
        finding |= {"theirs": finding.pop("paper_result"), "ours": finding.pop("measured")}
        assert self.old(tmp_path, 2, document) == now


class TestMerge:
    def test_runs_in_order_and_differing_settings_move_into_them(self) -> None:
        early, late = (
            a_record(
                runs=[a_run(name=name)],
                settings={"seed": seed, "workers": 4},
                created=datetime(2030, 1, day, tzinfo=UTC),
            )
            for name, seed, day in (("a", 1, 2), ("b", 2, 1))
        )
        merged = merge([early, late])
        assert [run.name for run in merged.runs] == ["a", "b"]
        assert merged.settings == {"workers": 4}
        assert [run.settings["seed"] for run in merged.runs] == [1, 2]
        assert merged.created == late.created

    def test_other_machines_are_refused_and_the_difference_named(self) -> None:
        here = a_record()
        there = a_record(machine=here.machine.model_copy(update={"cores": 128}))
        with pytest.raises(InputError, match=r"differ in machine\.cores \(2 and 128\)"):
            merge([here, there])

    def test_other_versions_of_innet_are_refused(self) -> None:
        with pytest.raises(InputError, match="differ in innet"):
            merge([a_record(), a_record(innet="9.9")])

    def test_runs_of_one_name_are_refused(self) -> None:
        with pytest.raises(InputError, match=r"same name .*: dense, plain, topk"):
            merge([a_record(), a_record()])

    def test_nothing(self) -> None:
        with pytest.raises(InputError, match="no records"):
            merge([])


def test_this_machine_is_described() -> None:
    machine = Machine.here()
    assert machine.cores >= 1
    assert machine.cpu
    assert machine.python.split()[1].startswith("3.")
    assert machine.numpy[0].isdigit()
