"""What every gRPC tool expects: health and reflection."""

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from harness import claim, same

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def health(manager, service):
    """What the manager says of a service."""
    stub = health_pb2_grpc.HealthStub(manager.channel)
    return stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5).status


def check_health(managers, leader, services):
    """Every name that a load balancer may ask for."""
    with claim("health: every manager serves, reads and names its services; one leads"):
        for manager in managers:
            for name in ["", "quorate.read", *sorted(services)]:
                same(health(manager, name), SERVING, f"health of {name!r} on {manager.name}")
        leading = [m.name for m in managers if health(m, "quorate.leader") == SERVING]
        same(leading, [leader], "who serves quorate.leader")
    with claim("health: an unknown name is NOT_FOUND"):
        try:
            health(managers[0], "quorate.nothing")
            raise AssertionError("it was known")
        except grpc.RpcError as error:
            same(error.code(), grpc.StatusCode.NOT_FOUND, "its code")


def _reflect(manager, version, **request):
    """One question to the reflection service; v1 and v1alpha have the same messages."""
    call = manager.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    return next(call(iter([reflection_pb2.ServerReflectionRequest(**request)]), timeout=5))


def check_reflection(manager, services):
    """Both versions tell the public services, and no others."""
    for version in ["v1", "v1alpha"]:
        with claim(f"reflection {version}: lists the public services, and can describe each"):
            listed = _reflect(manager, version, list_services="").list_services_response.service
            names = {service.name for service in listed}
            assert services <= names, f"{services - names} are not listed"
            inner = [n for n in names if ".raft." in n or ".agent." in n or ".store." in n]
            assert not inner, f"{inner} are listed"
            for name in services:
                answer = _reflect(manager, version, file_containing_symbol=name)
                files = answer.file_descriptor_response.file_descriptor_proto
                assert any(name.rsplit(".", 1)[1].encode() in file for file in files), f"{name} is not described"
