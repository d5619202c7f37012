"""Quorate as a client in another language sees it: generated from proto/, on grpcio, with nothing of ours.

Started by `chaos foreign`, which answers on standard input (harness.py).
"""

import argparse
import importlib
import pathlib
import sys
import tempfile

from grpc_tools import protoc

API = []


def generate(root, out):
    """The Python code of the public packages."""
    protos = pathlib.Path(root) / "proto"
    files = sorted(str(f) for part in ["api", "common"] for f in (protos / "quorate" / part).rglob("*.proto"))
    included = pathlib.Path(protoc.__file__).parent / "_proto"
    args = ["protoc", f"-I{protos}", f"-I{included}", f"--python_out={out}", f"--grpc_python_out={out}", *files]
    if protoc.main(args) != 0:
        raise SystemExit("the protos do not compile")
    sys.path.insert(0, str(out))
    for file in (protos / "quorate" / "api" / "v1").glob("*.proto"):
        importlib.import_module(f"quorate.api.v1.{file.stem}_pb2")
        API.append(file.stem)


def described():
    """The full names of the public services, by the protos."""
    from google.protobuf import descriptor_pool

    pool = descriptor_pool.Default()
    files = [pool.FindFileByName(f"quorate/api/v1/{name}.proto") for name in API]
    return {service.full_name for file in files for service in file.services_by_name.values()}


def run(root, addresses):
    """Every check, against the managers at `addresses` (name=host:port)."""
    import calls
    import over_http
    import standard
    import watching
    from api import Manager, leader_of
    from harness import done

    managers = [Manager(*address.split("=", 1)) for address in addresses]
    leader = leader_of(managers)
    follower = next(m for m in managers if m.name != leader)
    services = described()
    standard.check_health(managers, leader, services)
    standard.check_reflection(follower, services)
    calls.check_writes(managers, follower)
    calls.check_errors(follower)
    over_http.check_json(managers, follower)
    over_http.check_grpc_web(follower)
    watching.check_replays(managers)
    watching.check_refusals(follower)
    over_http.check_events(managers)
    watching.check_through_kills(managers)
    leader = leader_of(managers)
    config = pathlib.Path(root) / "config" / "clients" / "service_config.json"
    calls.check_service_config(managers, config, leader)
    calls.check_without_quorum(managers, over_http.check_retry_after)
    done()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True, help="folder of the sources")
    parser.add_argument("managers", nargs="+", help="NAME=HOST:PORT")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as out:
        generate(args.root, out)
        run(args.root, args.managers)


if __name__ == "__main__":
    main()
