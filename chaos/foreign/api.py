"""The API as generated from the protos, and its errors decoded."""

import time

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from quorate.api.v1 import cluster_pb2, cluster_pb2_grpc, job_pb2, job_pb2_grpc, task_pb2_grpc
from quorate.common.v1 import meta_pb2, spec_pb2

from harness import same

DOMAIN = "quorate.dev"
DEADLINE = 10
# A restarted manager is tried again soon, and no channel inherits the back-off of another.
OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]
DETAILS = [error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RetryInfo]


def channel(address):
    return grpc.insecure_channel(address, OPTIONS)


class Manager:
    """One manager, over one channel."""

    def __init__(self, name, address):
        self.name = name
        self.address = address
        self.channel = channel(address)
        self.jobs = job_pb2_grpc.JobServiceStub(self.channel)
        self.tasks = task_pb2_grpc.TaskServiceStub(self.channel)
        self.cluster = cluster_pb2_grpc.ClusterServiceStub(self.channel)

    def status(self):
        return self.cluster.GetClusterStatus(cluster_pb2.GetClusterStatusRequest(), timeout=DEADLINE)


class Failure:
    """A failed call with its details."""

    def __init__(self, error):
        self.code = error.code()
        self.message = error.details()
        self.trailers = {key: value for key, value in error.trailing_metadata() or ()}
        status = rpc_status.from_call(error)
        found = {}
        for detail in status.details if status else ():
            for kind in DETAILS:
                message = kind()
                if detail.Unpack(message):
                    found[kind.__name__] = message
        self.info = found.get("ErrorInfo")
        self.bad_request = found.get("BadRequest")
        self.retry = found.get("RetryInfo")
        assert self.info and self.info.domain == DOMAIN, f"no ErrorInfo of ours: {self.code} {self.message}"

    @property
    def reason(self):
        return self.info.reason


def refused(call):
    """The failure of a call that must fail."""
    try:
        answer = call()
    except grpc.RpcError as error:
        return Failure(error)
    raise AssertionError(f"it was not refused: {answer}")


def spec(name, replicas=1):
    """A service of simulated tasks."""
    container = spec_pb2.ContainerSpec(runtime=spec_pb2.RUNTIME_FAKE)
    return job_pb2.JobSpec(
        name=name, service=job_pb2.ServiceSpec(replicas=replicas), containers={"main": container}
    )


def get(name, stale=False):
    level = meta_pb2.CONSISTENCY_STALE if stale else meta_pb2.CONSISTENCY_LINEARIZABLE
    return job_pb2.GetJobRequest(name=name, read=meta_pb2.ReadOptions(consistency=level))


def until(what, limit, look):
    """Looks until there is an answer that is true; with a bound of seconds."""
    end = time.monotonic() + limit
    while True:
        answer = look()
        if answer:
            return answer
        assert time.monotonic() < end, f"not within {limit} s: {what}"
        time.sleep(0.02)


def leader_of(managers):
    """The name of the manager that all say to be the leader."""

    def agreed():
        try:
            leaders = {manager.status().meta.leader for manager in managers}
        except grpc.RpcError as error:
            same(error.code(), grpc.StatusCode.UNAVAILABLE, "the code of a manager that is away")
            return None
        return leaders.pop() if len(leaders) == 1 and "" not in leaders else None

    return until("one leader", 20, agreed)
