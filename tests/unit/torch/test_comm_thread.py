"""Communication threads of several workers over a switch service: sums, preflights, errors."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import queue
import subprocess
import sys
import threading
import time
from datetime import timedelta

import numpy as np
import pytest
from support.service import SECONDS, joined, serving, together, where

torch = pytest.importorskip("torch")

import innet  # noqa: E402 - after importorskip: innet.torch needs PyTorch
from innet import kernels  # noqa: E402
from innet.allreduce.warm_up import warm_up  # noqa: E402
from innet.codecs import PRESETS, SumOptions, build_codec  # noqa: E402
from innet.core.errors import (  # noqa: E402
    GradientError,
    InnetError,
    InputError,
    MembershipError,
    MissingToolError,
    NetworkError,
    StalledError,
    StateError,
)
from innet.core.shards import Shards  # noqa: E402
from innet.service.process import LocalSwitch  # noqa: E402
from innet.torch.comm_thread import CommThread  # noqa: E402
from innet.torch.group import create  # noqa: E402
from innet.torch.preflight import preflight  # noqa: E402
from innet.torch.reducers import SwitchReducer  # noqa: E402
from innet.torch.rendezvous import RendezvousSettings, join_store  # noqa: E402
from innet.torch.tensors import kernels_for, to_arrays, to_tensors  # noqa: E402

WORKERS = 3


class ReduceWork:
    """Remembers what became of it."""

    def __init__(self, codec, gradient, fingerprint="the same"):
        self.codec = codec
        self.name = ""
        self.fingerprint = fingerprint
        self.parts = ()
        self.options = SumOptions()
        self._gradient = gradient
        self._outcome = queue.SimpleQueue()

    def load(self):
        if isinstance(self._gradient, Exception):
            raise self._gradient
        return self._gradient

    def set_result(self, total, factor, report):
        self._outcome.put(total)

    def set_not_finite(self, workers):
        self._outcome.put(workers)

    def set_exception(self, error):
        self._outcome.put(error)

    def outcome(self):
        return self._outcome.get(timeout=SECONDS)


class MoveWork:
    """A collective that sums nothing."""

    def __init__(self, name="", fingerprint="a barrier"):
        self.name = name
        self.fingerprint = fingerprint
        self._outcome = queue.SimpleQueue()

    def move(self):
        self._outcome.put("moved")

    def set_exception(self, error):
        self._outcome.put(error)

    def outcome(self):
        return self._outcome.get(timeout=SECONDS)


@contextlib.contextmanager
def comm_threads(deadline=SECONDS):
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(serving())
        made = []
        for member in joined(service, stack, WORKERS):
            made.append(CommThread(SwitchReducer(member, deadline), deadline=deadline, seed=1))
            stack.callback(made[-1].close)
        yield made


def run(all_threads, gradients, codec="dense", fingerprint=None):
    """Put an work into each comm_thread; what becomes of them."""
    works = [
        ReduceWork(
            each.build_codec(codec) if isinstance(codec, str) else codec[index],
            gradients[index],
            "the same" if fingerprint is None else fingerprint[index],
        )
        for index, each in enumerate(all_threads)
    ]
    for each, work in zip(all_threads, works, strict=True):
        each.put(work)
    return [work.outcome() for work in works]


def gradients(size=500):
    rng = np.random.default_rng(2)
    return [rng.laplace(size=size).astype(np.float32) for _ in range(WORKERS)]


def test_many_errands_in_order_equal_to_memory():
    reference = innet.Collective(workers=WORKERS, codec="topk", values_per_packet=32, seed=1)
    with comm_threads() as all_threads:
        codecs = [each.build_codec("topk") for each in all_threads]
        for _ in range(4):
            expected, _ = reference.all_reduce(gradients())
            for found in run(all_threads, gradients(), codecs):
                np.testing.assert_array_equal(found, expected)


def test_a_gradient_that_is_not_finite_is_nobodys():
    with comm_threads() as all_threads:
        codecs = [each.build_codec("topk") for each in all_threads]
        run(all_threads, gradients(), codecs)
        before = [codec.state_dict() for codec in codecs]
        poisoned = gradients()
        poisoned[1][7] = np.nan
        poisoned[2][0] = np.inf
        assert run(all_threads, poisoned, codecs) == [(1, 2)] * WORKERS
        for codec, state in zip(codecs, before, strict=True):
            np.testing.assert_equal(codec.state_dict(), state)
        assert all(isinstance(each, np.ndarray) for each in run(all_threads, gradients(), codecs))


@pytest.mark.parametrize("speaker", range(WORKERS))
def test_an_error_of_one_is_told_to_all_and_they_can_go_on(speaker):
    with comm_threads() as all_threads:
        given: list = gradients()
        given[speaker] = StateError("something is wrong with the tensor ä")
        for worker, found in enumerate(run(all_threads, given)):
            if worker == speaker:
                assert isinstance(found, StateError)
            else:
                assert isinstance(found, NetworkError)
                assert f"worker {speaker} gave up" in str(found)
            assert "something is wrong with the tensor ä" in str(found)
        for found in run(all_threads, gradients()):
            assert isinstance(found, StateError)
            assert "before this one failed" in str(found)
        together([each.renew for each in all_threads])
        for found in run(all_threads, gradients()):
            np.testing.assert_allclose(found, sum(gradients()), atol=1e-5)


def test_what_a_codec_cannot_take_is_an_error_of_all():
    with comm_threads() as all_threads:
        codecs = [each.build_codec("topk") for each in all_threads]
        run(all_threads, gradients(), codecs)
        errors = run(all_threads, gradients(size=501), codecs)
        assert all("residual of worker" in str(each) for each in errors)
        largest = np.full(500, np.finfo(np.float32).max, np.float32)
        together([each.renew for each in all_threads])
        run(all_threads, [largest / 8] * WORKERS, codecs)
        errors = run(all_threads, [largest] * WORKERS, codecs)
        assert isinstance(errors[0], GradientError)


def test_two_errors_at_once():
    with comm_threads() as all_threads:
        given: list = [ValueError("mine"), gradients()[1], ValueError("another")]
        first, second, third = run(all_threads, given)
        assert str(first) == "mine"
        assert "worker 0 gave up: mine" in str(second)
        assert str(third) == "another"


def test_workers_that_mean_different_tensors():
    with comm_threads() as all_threads:
        for worker, error in enumerate(run(all_threads, gradients(), fingerprint=["a", "b", "a"])):
            assert isinstance(error, InputError)
            assert f"worker {worker} runs {'aba'[worker]}." in str(error)


@pytest.mark.parametrize("how", ["leaves", "dies"])
def test_a_worker_that_ends_is_named(how):
    with comm_threads() as all_threads:
        gone = all_threads.pop()
        gone.close() if how == "leaves" else gone._reducer._member.close()
        begun = time.monotonic()
        for error in run(all_threads, gradients()):
            assert isinstance(error, MembershipError)
            assert "worker 2" in str(error)
        assert time.monotonic() - begun < SECONDS / 2  # nobody waited for the deadline


def test_a_switch_that_is_started_anew_goes_on_where_the_codecs_are():
    reference = innet.Collective(workers=WORKERS, codec="topk", values_per_packet=32, seed=1)
    with contextlib.ExitStack() as stack:
        with serving() as service:
            made = joined(service, stack, WORKERS)
            all_threads = [
                CommThread(SwitchReducer(each, SECONDS), deadline=SECONDS, seed=1) for each in made
            ]
            for each in all_threads:
                stack.callback(each.close)
            codecs = [each.build_codec("topk") for each in all_threads]
            reference.all_reduce(gradients())
            run(all_threads, gradients(), codecs)
        for error in run(all_threads, gradients(), codecs):
            assert isinstance(error, MembershipError)
            assert "start it again" in str(error)
        stack.enter_context(serving(listen=where(service)))
        together([each.renew for each in all_threads])
        expected, _ = reference.all_reduce(gradients())
        for found in run(all_threads, gradients(), codecs):
            np.testing.assert_array_equal(found, expected)


def test_a_worker_that_does_not_come_is_named_at_the_deadline():
    with comm_threads(deadline=0.5) as all_threads:
        work = ReduceWork(all_threads[0].build_codec("dense"), gradients()[0])
        all_threads[0].put(work)
        error = work.outcome()
        assert isinstance(error, StalledError)
        assert "waits for workers 1, 2" in str(error)


def test_closing_twice_is_fine():
    with comm_threads() as all_threads:
        all_threads[0].close()
        all_threads[0].close()


def test_work_for_a_closed_thread_fails():
    with comm_threads() as all_threads:
        work = ReduceWork(all_threads[0].build_codec("dense"), gradients()[0])
        all_threads[0].close()
        all_threads[0].put(work)
        error = work.outcome()
        assert isinstance(error, StateError)
        assert "worker 0 has left its job" in str(error)


def test_work_in_a_process_that_was_forked_fails(monkeypatch):
    """The thread that would carry it out is not there."""
    with comm_threads() as all_threads:
        work = ReduceWork(all_threads[0].build_codec("dense"), gradients()[0])
        with monkeypatch.context() as forked:
            forked.setattr("innet.torch.comm_thread.os.getpid", lambda: 0)
            all_threads[0].put(work)
        error = work._outcome.get(timeout=30)
        assert isinstance(error, StateError)
        assert "worker 0 is in its job in the process that this one was forked from" in str(error)


@pytest.mark.parametrize("call", [CommThread.renew, CommThread.has_lost_switch])
def test_in_a_process_that_was_forked_nothing_waits_for_the_thread(monkeypatch, call):
    with comm_threads() as all_threads:
        all_threads[0]._deadline = 3.0  # it would wait so long for its end
        with monkeypatch.context() as forked:
            forked.setattr("innet.torch.comm_thread.os.getpid", lambda: 0)
            forked.setattr(all_threads[0], "_queue", queue.SimpleQueue())
            with pytest.raises(StateError, match="the process that this one was forked from"):
                call(all_threads[0])


def test_roll_calls_with_long_messages():
    def alone(segments):
        return [segment.words for segment in segments]

    answers = preflight(alone, 0, "it", error="é" * 5000)
    assert answers.failed == (0,)
    assert answers.message.startswith("é" * 500)
    assert preflight(alone, 31, "it", finite=False).not_finite == (31,)


def test_roll_calls_name_the_parts_that_nobody_uses():
    """Those are asked for only if somebody has one."""
    words = []

    def with_another(segments):
        """Another worker, who has no gradient to parts 1, 2 and 40."""
        mine = segments[0].words.view(np.uint32).copy()
        words.append(mine.size)
        if len(words) == 1:
            mine[-1] |= 2
        else:
            used = np.ones(64, np.uint8)
            used[[1, 2, 40]] = 0
            used[41:] = 0
            mine |= np.packbits(used, bitorder="little").view(np.uint32)
        return [mine.view(np.int32)]

    answers = preflight(with_another, 0, "it", workers=2, zero=(2, 7, 40), parts=41)
    assert answers.unused == (2, 40)
    assert words == [7, 2]
    words.clear()
    assert preflight(lambda s: [s[0].words], 0, "it", workers=2, parts=41).unused == ()


@pytest.mark.parametrize("workers", [33, 64, 1000, 32768])
def test_roll_calls_of_many(workers):
    for worker in (0, 31, 32, workers - 1):
        words = []

        def alone(segments, words=words):
            words.append(segments[0].words.size)
            return [segment.words for segment in segments]

        found = preflight(alone, worker, "it", workers=workers, finite=False)
        assert found.not_finite == (worker,)
        assert words == [4 + 3 * -(-workers // 32)]
        answers = preflight(alone, worker, "it", workers=workers, error="no")
        assert (answers.failed, answers.message) == ((worker,), "no")


def test_where_workers_come_to_all_reduces_in_other_orders_that_of_worker_0_counts():
    orders = [["a", "b", "c"], ["c", "a", "b"], ["b", "c", "a"]]
    with comm_threads() as all_threads:
        works = []
        for index, (each, names) in enumerate(zip(all_threads, orders, strict=True)):
            mine = {}
            for number, name in enumerate(names):
                gradient = np.full(20, index + 1 + 10 * ord(name), np.float32)
                mine[name] = ReduceWork(each.build_codec("exact"), gradient)
                mine[name].name = name
                if number < 2:
                    each.put(mine[name])
            works.append(mine)
        time.sleep(0.2)  # the last of each comes later
        for each, names, mine in zip(all_threads, orders, works, strict=True):
            each.put(mine[names[2]])
        for name in "abc":
            for mine in works:
                assert mine[name].outcome().tolist() == [6 + 30 * ord(name)] * 20


def test_what_sums_nothing_comes_in_the_order_of_worker_0_too():
    with comm_threads() as all_threads:
        works = []
        for each in all_threads:
            mine = [ReduceWork(each.build_codec("exact"), np.ones(20, np.float32)), MoveWork("b")]
            mine[0].name = "a"
            works.append(mine)
            for work in mine if each is all_threads[1] else mine[::-1]:
                each.put(work)
        for total, moved in works:
            assert moved.outcome() == "moved"
            assert total.outcome().tolist() == [WORKERS] * 20


def test_workers_at_different_collectives_say_so():
    with comm_threads() as all_threads:
        works = [MoveWork() for _ in all_threads]
        works[2] = ReduceWork(all_threads[2].build_codec("exact"), np.ones(20, np.float32))
        works[2].fingerprint = "a sum"
        for each, work in zip(all_threads, works, strict=True):
            each.put(work)
        for work in works:
            said = work.outcome()
            assert isinstance(said, InputError)
            assert "run different collectives" in str(said)
            assert f"runs {work.fingerprint}. All must" in str(said)


def test_parts_of_a_sum_need_a_program_that_knows_owners():
    with comm_threads() as all_threads:
        works = [
            ReduceWork(each.build_codec("exact"), np.ones(20, np.float32)) for each in all_threads
        ]
        for each, work in zip(all_threads, works, strict=True):
            work.options = SumOptions(shards=Shards.of(20, range(WORKERS)))
            each.put(work)
        for work in works:
            said = work.outcome()
            assert isinstance(said, InputError)
            assert "program slots-32 knows no reduce-scatter" in str(said)


def test_an_all_reduce_that_one_worker_never_begins_is_told_to_all():
    with comm_threads(deadline=2.0) as all_threads:
        works = []
        for index, each in enumerate(all_threads):
            work = ReduceWork(each.build_codec("dense"), gradients()[index], f"it, here {index}")
            work.name = "first" if index == 0 else "second"
            works.append(work)
            each.put(work)
        for work in works:
            error = work.outcome()
            assert isinstance(error, InnetError)
            assert "has not begun the collective that worker 0 waits for" in str(error)


# ---------------------------------------------------------------- where workers meet


class UsedStore:
    """A store that sets an event after each use of it."""

    def __init__(self, store, used):
        self._store = store
        self._used = used

    def __getattr__(self, name):
        def use(*arguments):
            found = getattr(self._store, name)(*arguments)
            self._used.set()
            return found

        return use


def meeting(store, settings, first=None):
    """All workers' attempts to meet; a membership or an error each. The others come after ``first``
    has looked into the store or written to it.
    """
    came = threading.Event()

    def attempt(worker):
        if first not in (None, worker):
            assert came.wait(60)
        own = UsedStore(store, came) if worker == first else store
        try:
            return join_store(own, worker, WORKERS, settings[worker])
        except innet.core.errors.InnetError as error:
            return error

    return together([lambda w=w: attempt(w) for w in range(WORKERS)])


def at(service, **options):
    return RendezvousSettings(
        **{"switch": where(service), "job": "mine", "deadline": 30.0} | options
    )


def test_workers_meet_at_a_switch_by_their_store():
    with serving(key="secret", workers_max=WORKERS) as service:
        members = meeting(torch.distributed.HashStore(), [at(service, key="secret")] * WORKERS)
        assert [each.worker for each in members] == list(range(WORKERS))
        assert len({each.job for each in members}) == 1
        assert members[0].job.startswith("mine-")
        for each in members:
            each.leave()


@pytest.mark.parametrize("first", range(WORKERS))
def test_workers_that_are_restarted_do_not_meet_where_they_met_before(first):
    """Whoever comes first, with all that was said before in the store."""
    store = torch.distributed.HashStore()
    names = set()
    for _ in range(3):
        with serving(workers_max=WORKERS) as service:  # another one each time
            members = meeting(store, [at(service)] * WORKERS, first)
            assert len({each.job for each in members}) == 1
            names.add(members[0].job)
            for each in members:
                each.leave()
    assert len(names) == 3


def test_a_group_is_made_again_from_the_store_of_the_one_before(monkeypatch):
    """Its gloo's connections, too, are not those that the store still tells of."""
    store = torch.distributed.HashStore()

    def once(rank):
        time.sleep(0.2 * rank)
        group = create(store, rank, 2, timedelta(seconds=5))
        found = [torch.ones(3), torch.ones(3, dtype=torch.int64)]
        for tensor in found:
            group.allreduce([tensor]).wait()
        group.shutdown()
        return [tensor.tolist() for tensor in found]

    with serving(workers_max=2) as service:
        monkeypatch.setenv("INNET_SWITCH", where(service))
        for _ in range(2):
            for each in together([lambda r=r: once(r) for r in range(2)]):
                assert each == [[2.0] * 3, [2] * 3]


@pytest.mark.parametrize(("rank", "missing"), [(0, "ranks 1, 2"), (2, "rank 0")])
def test_who_does_not_come_to_a_group_is_named(rank, missing, monkeypatch):
    monkeypatch.setattr("innet.torch.rendezvous.START_SECONDS", 0.0)
    settings = RendezvousSettings(switch="127.0.0.1:1", deadline=0.1)
    with pytest.raises(StalledError, match=f"rank {rank} waited for {missing} to come"):
        join_store(torch.distributed.HashStore(), rank, WORKERS, settings)


def test_a_wrong_key_is_everybodys_error():
    with serving(key="secret", workers_max=WORKERS) as service:
        settings = [at(service, key="secret", deadline=5.0) for _ in range(WORKERS)]
        settings[1] = at(service, key="another", deadline=5.0)
        found = meeting(torch.distributed.HashStore(), settings)
        assert "the key is not the switch's" in str(found[1])
        for other in (found[0], found[2]):
            assert isinstance(other, StalledError)
            assert "1" in str(other)


def test_no_switch_is_everybodys_error():
    with serving() as service:
        gone = at(service, deadline=5.0)
    for error in meeting(torch.distributed.HashStore(), [gone] * WORKERS):
        assert isinstance(error, NetworkError)
        assert gone.switch in str(error)


def test_a_switch_that_cannot_be_started_is_everybodys_error(monkeypatch):
    monkeypatch.setenv("INNET_VALUES", "33")
    for error in meeting(
        torch.distributed.HashStore(), [RendezvousSettings(deadline=5.0)] * WORKERS
    ):
        assert isinstance(error, NetworkError)
        assert "rank 0 has no switch" in str(error)
        assert "33" in str(error)


def test_a_switch_of_another_machine_is_told_apart(monkeypatch):
    each_another = itertools.count()
    monkeypatch.setattr("innet.torch.rendezvous._machine", lambda: str(next(each_another)))
    with serving() as service:
        own = type("Own", (), {"address": where(service), "key": None})
        monkeypatch.setattr("innet.torch.rendezvous.local_switch", lambda: own)
        found = meeting(
            torch.distributed.HashStore(), [RendezvousSettings(deadline=60.0)] * WORKERS
        )
        assert any("several machines" in str(error) for error in found)


def test_settings_come_from_the_environment(tmp_path):
    (tmp_path / "key").write_text("secret\n")
    environment = {"INNET_SWITCH": "a:1", "INNET_JOB": "b", "INNET_KEY_FILE": str(tmp_path / "key")}
    found = RendezvousSettings.of(deadline=2.0, environment=environment)
    assert found == RendezvousSettings("a:1", "b", "secret", 2.0)
    assert (
        RendezvousSettings.of(switch="c:2", key="d", deadline=2.0, environment=environment).key
        == "d"
    )
    with pytest.raises(InputError, match="INNET_KEY_FILE"):
        RendezvousSettings.of(deadline=1.0, environment={"INNET_KEY_FILE": str(tmp_path / "none")})
    with pytest.raises(InputError, match="deadline"):
        RendezvousSettings.of(deadline=0.0, environment={})


# ---------------------------------------------------------------- the switch that is started


def is_there(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.repeats("a local switch that ends when its parent is killed")
def test_a_local_switch_ends_when_it_is_closed():
    local_switch = LocalSwitch()
    assert local_switch.is_running
    assert local_switch.address.startswith("127.0.0.1:")
    local_switch.close()
    assert not local_switch.is_running


def test_a_local_switch_that_does_not_listen_in_time_is_ended(monkeypatch):
    monkeypatch.setattr("innet.service.process.START_SECONDS", 0.0)
    made = []
    begin = subprocess.Popen
    monkeypatch.setattr(
        "subprocess.Popen", lambda *given, **named: made.append(begin(*given, **named)) or made[0]
    )
    with pytest.raises(
        NetworkError, match=r"listening within 0 s.*innet switch serve.*INNET_SWITCH"
    ):
        LocalSwitch()
    assert made[0].returncode is not None


def test_a_local_switch_ends_with_who_started_it():
    """Not with a process that was forked, which ends by sys.exit, with all that is done at the end
    of an interpreter; but when its parent is killed.
    """
    program = (
        "import os, sys; from innet.service.process import local_switch; each = local_switch();"
        "process = os.fork(); process or sys.exit(); os.waitpid(process, 0);"
        "print(each.is_running, each.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    is_running, pid = done.stdout.split()
    assert is_running == "True"
    end = time.monotonic() + 20
    while is_there(int(pid)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_there(int(pid))


# ---------------------------------------------------------------- tensors


def test_states_survive_as_tensors():
    for name in PRESETS.names():
        codec = build_codec(name, layers=[(8, 8), 36])
        state = codec.state_dict()
        codec.load_state_dict(to_arrays(to_tensors(state)))
        np.testing.assert_equal(codec.state_dict(), state)
    warm_up("dense", np.ones(3, np.float32))


def test_any_saved_state_goes_through_a_file_that_is_not_trusted():
    kept = np.arange(3, dtype=np.float32)
    state = {"a": [np.float32(2), (kept, None)], "n": np.int64(7), "empty": np.empty(0, np.int32)}
    file = io.BytesIO()
    torch.save(to_tensors(state), file)
    kept[:] = 9  # what was saved is a copy
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    back = to_arrays(loaded)
    expected = {"a": [2.0, (np.arange(3, dtype=np.float32), None)], "n": 7, "empty": state["empty"]}
    np.testing.assert_equal(back, expected)
    assert type(back["a"][1]) is tuple
    assert (back["a"][1][0].dtype, back["empty"].dtype) == (np.float32, np.int32)
    back["a"][1][0][:] = 5
    assert loaded["a"][1][0].tolist() == [0, 1, 2]


def test_a_model_on_a_gpu_needs_kernels_for_it(monkeypatch):
    assert kernels_for(torch.device("cpu")) == "cpu"
    with pytest.raises(InputError, match="'mps'"):
        kernels_for(torch.device("mps"))
    missing = MissingToolError("numba-cuda", "kernels on a GPU", "Install it.")
    monkeypatch.setattr(kernels.gpu, "missing", lambda: missing)
    with pytest.raises(MissingToolError, match="numba-cuda"):
        kernels_for(torch.device("cuda", 0))
