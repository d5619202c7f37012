"""The other ways in, by curl: JSON over HTTP/1.1 and HTTP/2, gRPC-Web, errors in JSON."""

import json
import struct
import subprocess
import tempfile

from google.rpc import error_details_pb2
from quorate.api.v1 import job_pb2

from harness import claim, same

JSON = "application/json"
JOBS = "quorate.api.v1.JobService"


def curl(manager, path, body, kind=JSON, options=()):
    """Status, headers in lower case, body."""
    with tempfile.NamedTemporaryFile() as head, tempfile.NamedTemporaryFile() as sent:
        sent.write(body)
        sent.flush()
        command = ["curl", "--silent", "--show-error", "--max-time", "20", "--dump-header", head.name]
        command += ["--header", f"content-type: {kind}", "--data-binary", f"@{sent.name}", *options]
        command.append(f"http://{manager.address}{path}")
        answer = subprocess.run(command, check=True, capture_output=True, timeout=30).stdout
        # The last one: an interim answer (100) may come before.
        lines = head.read().decode().replace("\r", "").strip().split("\n\n")[-1].split("\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
    return int(lines[0].split()[1]), headers, answer


def post(manager, method, message, options=(), prefix="/api/"):
    status, headers, answer = curl(manager, f"{prefix}{JOBS}/{method}", json.dumps(message).encode(), options=options)
    same(headers.get("content-type"), JSON, "the content type")
    return status, headers, json.loads(answer)


def _reason(answer):
    import base64

    for detail in answer["details"]:
        if detail["type"] == "google.rpc.ErrorInfo":
            padded = detail["value"] + "=" * (-len(detail["value"]) % 4)
            info = error_details_pb2.ErrorInfo.FromString(base64.b64decode(padded))
            same(detail["debug"]["reason"], info.reason, "the readable reason")
            return info.reason
    raise AssertionError(f"no ErrorInfo in {answer}")


def check_json(managers, follower):
    """Writes, reads and errors as JSON."""
    job = {"name": "curl", "service": {"replicas": 2}, "containers": {"main": {"runtime": "RUNTIME_FAKE"}}}
    with claim("curl: a job submitted to a follower as JSON is read from each manager"):
        status, _, answer = post(follower, "ApplyJob", {"spec": job})
        same((status, answer.get("created")), (200, True), "the answer")
        for manager in managers:
            for options in [["--http1.1"], ["--http2-prior-knowledge"]]:
                for prefix in ["/api/", "/"]:
                    status, _, read = post(manager, "GetJob", {"name": "curl"}, options, prefix)
                    same((status, read["job"]["etag"]), (200, answer["job"]["etag"]), f"the read on {manager.name}")
    table = [
        ("GetJob", {"name": "gone"}, 404, "not_found", "JOB_NOT_FOUND"),
        ("ApplyJob", {"spec": job, "etag": "0"}, 409, "already_exists", "JOB_EXISTS"),
        ("ApplyJob", {"spec": {**job, "priority": 101}}, 400, "invalid_argument", "JOB_INVALID"),
        ("ApplyJob", {"spec": {**job, "nmae": "x"}}, 400, "invalid_argument", "UNKNOWN_FIELD"),
        ("ApplyJob", {"spec": {**job, "name": 7}}, 400, "invalid_argument", "ARGUMENT_INVALID"),
        ("Nothing", {}, 404, "unimplemented", "UNSUPPORTED"),
    ]
    for method, message, code, word, reason in table:
        with claim(f"curl: {method} that is refused is {code} {reason}"):
            status, _, answer = post(follower, method, message)
            same((status, answer["code"], _reason(answer)), (code, word, reason), "the error")
    with claim("curl: GET is 405, another type of body 415, a huge one 413, all in JSON"):
        path = f"/api/{JOBS}/GetJob"
        cases = [
            (405, b"", JSON, ["--get"]),
            (415, b"{}", "text/plain", []),
            (413, b" " * (5 << 20), JSON, []),
        ]
        for code, body, kind, options in cases:
            status, headers, answer = curl(follower, path, body, kind, options)
            same((status, headers["content-type"]), (code, JSON), "the answer")
            assert json.loads(answer)["message"], str(answer)


def check_retry_after(manager):
    """Without a leader."""
    status, headers, answer = post(manager, "ScaleJob", {"name": "curl", "replicas": 1})
    same((status, answer["code"], _reason(answer)), (503, "unavailable", "NO_LEADER"), "the error over HTTP")
    assert int(headers["retry-after"]) >= 1, str(headers)


def check_grpc_web(manager):
    """One unary call in frames, as a browser sends it."""
    for options in [["--http1.1"], ["--http2-prior-knowledge"]]:
        with claim(f"curl: gRPC-Web reads the job ({options[0]})"):
            sent = job_pb2.GetJobRequest(name="curl").SerializeToString()
            body = struct.pack(">BI", 0, len(sent)) + sent
            kind = "application/grpc-web+proto"
            status, headers, answer = curl(manager, f"/{JOBS}/GetJob", body, kind, options)
            same((status, headers["content-type"]), (200, kind), "the answer")
            frames = {}
            while answer:
                flags, size = struct.unpack(">BI", answer[:5])
                frames[flags], answer = answer[5 : 5 + size], answer[5 + size :]
            same(job_pb2.GetJobResponse.FromString(frames[0]).job.name, "curl", "the job")
            assert b"grpc-status:0" in frames[0x80].replace(b" ", b""), str(frames[0x80])


def _events(manager, query, options=(), seconds=2):
    """The server-sent events of some seconds: id, name and data of each."""
    command = ["curl", "--silent", "--no-buffer", "--max-time", str(seconds), *options]
    command.append(f"http://{manager.address}/api/watch?{query}")
    # Curl ends by its own clock (28): the stream goes on.
    answer = subprocess.run(command, check=False, capture_output=True, timeout=30)
    same(answer.returncode, 28, "how curl ended")
    events = []
    for block in answer.stdout.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        events.append((int(fields.get("id", 0)), fields["event"], json.loads(fields["data"])))
    return events


def check_events(managers):
    """A watch as server-sent events, resumed on another manager as a browser does it."""
    query = "kinds=job&job=curl"
    with claim("curl: a watch as server-sent events begins with a snapshot and a bookmark"):
        events = _events(managers[0], query)
        same([name for _, name, _ in events][:2], ["snapshot", "bookmark"], "the first events")
        same(events[0][2]["changes"][0]["job"]["name"], "curl", "the job")
        reached = events[-1][0]
    with claim("curl: Last-Event-ID resumes on another manager, with what was changed meanwhile alone"):
        status, _, answer = post(managers[1], "ScaleJob", {"name": "curl", "replicas": 1})
        same(status, 200, "the status")
        events = _events(managers[2], query, ["--header", f"last-event-id: {reached}"])
        assert "snapshot" not in [name for _, name, _ in events], str(events)
        ids = [number for number, _, _ in events if number]
        assert ids == sorted(ids) and all(number >= reached for number in ids), str(ids)
        changes = [(number, c["kind"]) for number, name, data in events if name == "change" for c in data["changes"]]
        assert (int(answer["revision"]), "CHANGE_KIND_UPDATED") in changes, f"{answer['revision']} not in {changes}"
