"""Jobs through any manager: exact-once writes, fresh reads, errors with all their details."""

import json

import grpc
from quorate.api.v1 import job_pb2, job_pb2_grpc

from api import DEADLINE, Failure, get, leader_of, refused, spec, until
from harness import claim, kill, same, settle, start
from standard import NOT_SERVING, SERVING, health


def check_writes(managers, follower):
    """A write through a follower, read everywhere, repeated everywhere."""
    request = job_pb2.ApplyJobRequest(spec=spec("python", 3), request_id="01JDZKPYTH0N0000000000000A")
    answers = []
    with claim("a job submitted to a follower is read from each manager at once"):
        answers.append(follower.jobs.ApplyJob(request, timeout=DEADLINE))
        assert answers[0].created and answers[0].meta.manager == answers[0].meta.leader, str(answers[0].meta)
        for manager in managers:
            read = manager.jobs.GetJob(get("python"), timeout=DEADLINE)
            same(read.job.etag, answers[0].job.etag, f"the etag on {manager.name}")
            same(read.meta.manager, manager.name, "who answered")
    with claim("the same request id through every manager is one write with one answer"):
        for manager in managers:
            answers.append(manager.jobs.ApplyJob(request, timeout=DEADLINE))
        same({(a.created, a.revision, a.job.version) for a in answers}, {(True, answers[0].revision, 1)}, "the answers")
    with claim("its tasks come to run"):
        running = lambda: follower.jobs.GetJob(get("python"), timeout=DEADLINE).job.counts.running == 3
        until("three running tasks", 30, running)


def check_errors(manager):
    """Reasons, violations and metadata, decoded from the status."""
    apply = lambda **fields: refused(lambda: manager.jobs.ApplyJob(job_pb2.ApplyJobRequest(**fields), timeout=DEADLINE))
    with claim("JOB_INVALID names the fields that break rules"):
        bad = spec("python")
        bad.priority = 101
        failure = apply(spec=bad)
        same((failure.code, failure.reason), (grpc.StatusCode.INVALID_ARGUMENT, "JOB_INVALID"), "the error")
        same([v.field for v in failure.bad_request.field_violations], ["priority"], "the fields")
    with claim("ETAG_MISMATCH tells what is stored"):
        old = manager.jobs.GetJob(get("python"), timeout=DEADLINE).job.etag
        stored = manager.jobs.ApplyJob(job_pb2.ApplyJobRequest(spec=spec("python", 4)), timeout=DEADLINE).job.etag
        failure = apply(spec=spec("python", 5), etag=old)
        same((failure.code, failure.reason), (grpc.StatusCode.ABORTED, "ETAG_MISMATCH"), "the error")
        assert failure.info.metadata["stored"] in stored, str(failure.info.metadata)
    with claim("JOB_EXISTS refuses what must be new"):
        failure = apply(spec=spec("python"), etag="0")
        same((failure.code, failure.reason), (grpc.StatusCode.ALREADY_EXISTS, "JOB_EXISTS"), "the error")
    with claim("REQUEST_ID_REUSED refuses another body under the same id"):
        failure = apply(spec=spec("python", 9), request_id="01JDZKPYTH0N0000000000000A")
        same((failure.code, failure.reason), (grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_ID_REUSED"), "the error")
    with claim("JOB_NOT_FOUND tells which"):
        failure = refused(lambda: manager.jobs.GetJob(get("gone"), timeout=DEADLINE))
        same((failure.code, failure.reason), (grpc.StatusCode.NOT_FOUND, "JOB_NOT_FOUND"), "the error")
        same(failure.info.metadata["job"], "default/gone", "the job")


def check_without_quorum(managers, probe):
    """Two of three are killed: what the last one says, over gRPC and (`probe`) over HTTP."""
    last, others = managers[0], managers[1:]
    with claim("without a quorum: stale reads go on, health says so, writes get NO_LEADER with RetryInfo"):
        for manager in others:
            kill(manager.name)
        until("health to tell", 20, lambda: health(last, "") == NOT_SERVING)
        same(health(last, "quorate.read"), SERVING, "health of quorate.read")
        same(health(last, "quorate.leader"), NOT_SERVING, "health of quorate.leader")
        same(last.jobs.GetJob(get("python", stale=True), timeout=DEADLINE).job.name, "python", "the stale read")
        request = job_pb2.ApplyJobRequest(spec=spec("late"))
        failure = refused(lambda: last.jobs.ApplyJob(request, timeout=DEADLINE))
        same((failure.code, failure.reason), (grpc.StatusCode.UNAVAILABLE, "NO_LEADER"), "the error")
        wait = failure.retry.retry_delay.ToTimedelta().total_seconds()
        assert 0 < wait <= 1, f"RetryInfo says {wait} s"
        same(int(failure.trailers["grpc-retry-pushback-ms"]), int(wait * 1000), "the pushback")
        probe(last)
    with claim("they come back, and nothing of the refused write is there"):
        for manager in others:
            start(manager.name)
        settle()
        leader_of(managers)
        for manager in managers:
            failure = refused(lambda m=manager: m.jobs.GetJob(get("late"), timeout=DEADLINE))
            same(failure.reason, "JOB_NOT_FOUND", f"the answer of {manager.name}")


def check_service_config(managers, path, leader):
    """The published configuration: one channel for all managers, with retries, over the loss of the leader."""
    with open(path, encoding="utf-8") as file:
        config = json.dumps(json.load(file))
    target = "ipv4:" + ",".join(m.address for m in managers)
    # Without a name, the list itself would be sent as the authority, which is none: HTTP/2 servers reset such calls.
    options = [("grpc.service_config", config), ("grpc.default_authority", "quorate")]
    apply = lambda stub, n: stub.ApplyJob(
        job_pb2.ApplyJobRequest(spec=spec(f"config-{n}", 0), request_id=f"01JDZKC0NF1G00000000000{n:03}"), timeout=30
    )
    with grpc.insecure_channel(target, options) as channel:
        stub = job_pb2_grpc.JobServiceStub(channel)
        with claim("config/clients/service_config.json: calls go round all managers"):
            seen = lambda: {stub.GetJob(get("python", stale=True), timeout=DEADLINE).meta.manager for _ in range(9)}
            until("answers from all", 20, lambda: len(seen()) == len(managers))
        with claim("config/clients/service_config.json: a plain client's writes go on while the leader is killed"):
            for number in range(5):
                apply(stub, number)
            kill(leader)
            unknown = 0
            for number in range(5, 25):
                unknown += _written(lambda n=number: apply(stub, n))
            assert unknown <= 2, f"{unknown} writes needed a second try with their request id"
            for number in range(25):
                read = job_pb2.GetJobRequest(name=f"config-{number}")
                same(stub.GetJob(read, timeout=30).job.version, 1, f"the version of config-{number}")
        start(leader)
        settle()


def _written(write):
    """1 if the outcome was unknown at first: gRPC's own retries leave that to the caller, who has the request id."""
    try:
        write()
        return 0
    except grpc.RpcError as error:
        ours = error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        if ours:
            same(Failure(error).reason, "COMMIT_TIMEOUT", "the reason")
        assert ours or error.code() == grpc.StatusCode.UNAVAILABLE, f"{error.code()}: {error.details()}"
        until("the write", 20, lambda: _succeeds(write))
        return 1


def _succeeds(write):
    try:
        write()
        return True
    except grpc.RpcError as error:
        assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED), error.details()
        return False
