"""Watches through the loss of the leader: no gap, no duplicate, the right order, on whichever manager.

The watcher keeps a copy of the objects and applies each change to it. A change that does not fit (created twice, changed
or deleted while absent, an older revision) is what a gap or a duplicate looks like; in the end the copy must equal the
lists.
"""

import threading
import time

import grpc
from quorate.api.v1 import job_pb2, task_pb2, watch_pb2, watch_pb2_grpc
from quorate.common.v1 import meta_pb2

from api import DEADLINE, Failure, channel, leader_of, refused, spec, until
from harness import claim, kill, same, says, settle, start

NAMESPACE = "watched"
PRESENT, CREATED, UPDATED, DELETED = (
    watch_pb2.CHANGE_KIND_PRESENT,
    watch_pb2.CHANGE_KIND_CREATED,
    watch_pb2.CHANGE_KIND_UPDATED,
    watch_pb2.CHANGE_KIND_DELETED,
)


def request(start_revision=0):
    kinds = [watch_pb2.OBJECT_KIND_JOB, watch_pb2.OBJECT_KIND_TASK]
    return watch_pb2.WatchRequest(kinds=kinds, namespace=NAMESPACE, start_revision=start_revision)


def facts(change):
    """Which object, and what must be the same everywhere. A job's counts are those of the moment of sending."""
    if change.WhichOneof("object") == "job":
        return ("job", change.job.name), (change.job.version, change.job.etag, change.job.revision)
    return ("task", change.task.id), (change.task.state, change.task.node, change.task.revision)


class Copy:
    """The objects as the changes tell them."""

    def __init__(self):
        self.objects = {}
        self.reached = 0
        self.changes = 0
        self.complete = False

    def apply(self, revision, messages):
        """All messages of one revision."""
        snapshot = any(message.snapshot for message in messages)
        moved = [change for message in messages for change in message.changes]
        if moved and not snapshot:
            assert revision > self.reached, f"revision {revision} came after {self.reached}"
        assert revision >= self.reached, f"back from {self.reached} to {revision}"
        for change in moved:
            key, fact = facts(change)
            known = key in self.objects
            assert change.kind == PRESENT if snapshot else change.kind != PRESENT, f"{key} is kind {change.kind}"
            if change.kind in (PRESENT, CREATED):
                assert not known, f"{key} came twice, at {revision}"
            else:
                assert known, f"{key} changed at {revision} and had not come before"
            if change.kind == DELETED:
                del self.objects[key]
            else:
                self.objects[key] = fact
            self.changes += 1
        self.reached = revision
        self.complete = self.complete or any(message.bookmark for message in messages)


class Watcher(threading.Thread):
    """Follows one manager after the other; `broken` is what does not fit."""

    def __init__(self, managers):
        super().__init__(daemon=True)
        self.managers = list(managers)
        self.copy = Copy()
        self.resumed = 0
        self.at = None
        self.broken = None
        self.ending = threading.Event()
        self.begin = 0
        self.call = None

    def run(self):
        try:
            while not self.ending.is_set():
                self._follow(self.managers[self.begin % len(self.managers)])
                self.begin += 1
        except Exception as error:  # pylint: disable=broad-except
            self.broken = error

    def _follow(self, manager):
        """One stream, to its end. What is not finished of a revision is forgotten."""
        with channel(manager.address) as own:
            self.call = watch_pb2_grpc.WatchServiceStub(own).Watch(request(self.copy.reached))
            messages = []
            try:
                for message in self.call:
                    if messages:
                        same(message.revision, messages[0].revision, "the revision of a part")
                    messages.append(message)
                    if not message.partial:
                        self.at = manager.name
                        self.copy.apply(message.revision, messages)
                        messages = []
            except grpc.RpcError as error:
                lost = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
                # A manager that has just started knows no changes of the past: another does.
                young = error.code() == grpc.StatusCode.OUT_OF_RANGE
                young = young and Failure(error).reason == "REVISION_COMPACTED"
                assert young or error.code() in lost, f"{manager.name}: {error.code()}: {error.details()}"
            self.at = None
            self.resumed += self.copy.reached > 0
            time.sleep(0.02)

    def stop(self):
        self.ending.set()
        self.call.cancel()
        self.join(DEADLINE)

    def must_fit(self):
        if self.broken:
            raise self.broken


class Writer(threading.Thread):
    """Creates, scales and purges jobs, whoever leads; a write that failed is tried again with its request id."""

    def __init__(self, managers):
        super().__init__(daemon=True)
        self.managers = list(managers)
        self.ending = threading.Event()
        self.written = 0
        self.failed = None

    def run(self):
        number = 0
        try:
            while not self.ending.is_set():
                name = f"job-{number}"
                job = spec(name, 2)
                job.namespace = NAMESPACE
                self._write(number, "A", "ApplyJob", job_pb2.ApplyJobRequest, spec=job)
                self._write(number, "S", "ScaleJob", job_pb2.ScaleJobRequest, namespace=NAMESPACE, name=name, replicas=3)
                if number >= 5:
                    old = f"job-{number - 5}"
                    self._write(
                        number, "D", "DeleteJob", job_pb2.DeleteJobRequest, namespace=NAMESPACE, name=old, purge=True
                    )
                number += 1
        except Exception as error:  # pylint: disable=broad-except
            self.failed = error

    def _write(self, number, step, method, kind, **fields):
        body = kind(request_id=f"01JDZKWATCH0000000{step}0000{number:04}", **fields)
        end = time.monotonic() + 30
        while True:
            manager = self.managers[number % len(self.managers)]
            try:
                getattr(manager.jobs, method)(body, timeout=5)
                self.written += 1
                return
            except grpc.RpcError as error:
                again = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
                assert error.code() in again, f"{method}: {error.code()}: {error.details()}"
                assert time.monotonic() < end, f"{method}: not within 30 s: {error.details()}"
                self.managers.append(self.managers.pop(0))
                time.sleep(0.05)

    def stop(self):
        self.ending.set()
        self.join(60)
        if self.failed:
            raise self.failed


def listed(manager):
    """The same facts, by the lists, and the revision that they reflect at least."""
    found, reached = {}, 0
    for call, kind, more in [
        (manager.jobs.ListJobs, job_pb2.ListJobsRequest, {}),
        (manager.tasks.ListTasks, task_pb2.ListTasksRequest, {"include_ended": True}),
    ]:
        token = ""
        while True:
            page = call(kind(namespace=NAMESPACE, page_size=50, page_token=token, **more), timeout=DEADLINE)
            for job in getattr(page, "jobs", ()):
                found[("job", job.name)] = (job.version, job.etag, job.revision)
            for task in getattr(page, "tasks", ()):
                found[("task", task.id)] = (task.state, task.node, task.revision)
            reached = max(reached, page.meta.applied_revision)
            token = page.next_page_token
            if not token:
                break
    return found, reached


def difference(copy, lists):
    both = {key: (copy.get(key), lists.get(key)) for key in copy.keys() | lists.keys()}
    return {key: pair for key, pair in both.items() if pair[0] != pair[1]}


def check_through_kills(managers, rounds=3):
    """The leader is killed under a watcher that follows it, while jobs come and go."""
    watcher, writer = Watcher(managers), Writer(managers)
    with claim(f"a watch through {rounds} kills of the leader, resumed on other managers: no gap, no duplicate") as figures:
        leader = leader_of(managers)
        watcher.begin = [m.name for m in managers].index(leader)
        watcher.start()
        writer.start()
        until("the end of the snapshot", 20, lambda: watcher.copy.complete or watcher.broken)
        for number in range(rounds):
            says(f"kill {number + 1} of {rounds}: {watcher.copy.changes} changes seen, {writer.written} writes done")
            _kill_round(managers, watcher, writer)
        writer.stop()
        watcher.must_fit()
        assert watcher.resumed >= rounds, f"the watch was resumed {watcher.resumed} times"
        equal = lambda: watcher.broken or not difference(watcher.copy.objects, listed(managers[0])[0])
        try:
            until("the copy to equal the lists", 30, equal)
        except AssertionError as error:
            left = difference(watcher.copy.objects, listed(managers[0])[0])
            raise AssertionError(f"{error}: {dict(list(left.items())[:5])}") from error
        watcher.must_fit()
        assert watcher.copy.changes > 50, f"only {watcher.copy.changes} changes were seen"
        figures.append(f"{watcher.copy.changes} changes, {writer.written} writes, {watcher.resumed} resumptions")
    writer.ending.set()
    watcher.ending.set()


def _kill_round(managers, watcher, writer):
    leader = leader_of(managers)
    # The watcher follows the leader when it dies.
    if watcher.at != leader:
        watcher.begin = [m.name for m in managers].index(leader) - 1
        watcher.call.cancel()
        until("the watcher to follow the leader", 20, lambda: watcher.at == leader or watcher.broken)
    watcher.must_fit()
    seen, written = watcher.copy.changes, writer.written
    kill(leader)
    until(
        "changes after the kill",
        30,
        lambda: (watcher.copy.changes > seen + 5 and writer.written > written + 3) or watcher.broken or writer.failed,
    )
    watcher.must_fit()
    start(leader)
    settle()


def check_replays(managers):
    """From one revision, every manager tells the same changes in the same order."""
    with claim("from one revision every manager tells the same changes in the same order"):
        before = managers[0].status().meta.applied_revision
        job = spec("replayed", 3)
        job.namespace = NAMESPACE
        managers[0].jobs.ApplyJob(job_pb2.ApplyJobRequest(spec=job), timeout=DEADLINE)
        running = lambda: _running(managers[0]) == 3
        until("three running tasks", 30, running)
        last = managers[0].status().meta.applied_revision
        told = [_changes(manager, before, last) for manager in managers]
        assert len(told[0]) >= 4, f"{len(told[0])} changes"
        for manager, other in zip(managers[1:], told[1:]):
            same(other, told[0], f"what {manager.name} tells")


def _running(manager):
    read = meta_pb2.ReadOptions(consistency=meta_pb2.CONSISTENCY_LINEARIZABLE)
    get = job_pb2.GetJobRequest(namespace=NAMESPACE, name="replayed", read=read)
    return manager.jobs.GetJob(get, timeout=DEADLINE).job.counts.running


def _changes(manager, after, upto):
    """The changes of the revisions in between."""
    told = []
    call = watch_pb2_grpc.WatchServiceStub(manager.channel).Watch(request(after), timeout=30)
    for message in call:
        told += [(message.revision, change.kind, *facts(change)) for change in message.changes]
        if message.revision >= upto and not message.partial:
            break
    call.cancel()
    return [change for change in told if change[0] <= upto]


def check_refusals(manager):
    """Revisions that cannot be served have errors of their own."""
    with claim("a watch from the future is refused by name"):
        call = lambda: next(
            watch_pb2_grpc.WatchServiceStub(manager.channel).Watch(request(1 << 40), timeout=DEADLINE)
        )
        failure = refused(call)
        same((failure.code, failure.reason), (grpc.StatusCode.OUT_OF_RANGE, "REVISION_IN_FUTURE"), "the error")
