"""A kernel with OpenTelemetry: calls one skill below a span of its own, and prints the context of that span."""

import os
import pathlib
import sys
import uuid

import grpc
from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

repository = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(repository / "examples/python"))
import weft_kernel  # noqa: E402

provider = TracerProvider(resource=Resource.create({"service.name": "kernel"}))
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(insecure=True)))
tracer = provider.get_tracer("kernel")

pb = weft_kernel.load_protos(repository / "proto", pathlib.Path(os.environ["XDG_CACHE_HOME"]))
with grpc.insecure_channel(os.environ["WEFT_COORDINATOR"]) as channel:
    with tracer.start_as_current_span("chat", kind=trace.SpanKind.INTERNAL):
        with tracer.start_as_current_span(
            "weft.v1.InvocationService/Invoke", kind=trace.SpanKind.CLIENT
        ):
            headers = {}
            propagate.inject(headers)
            invocation = pb.InvocationRequest(skill=sys.argv[1], args=b"{}", request_id=str(uuid.uuid4()))
            service = pb.InvocationServiceStub(channel)
            request = pb.InvokeRequest(invocation=invocation)
            for response in service.Invoke(request, metadata=list(headers.items())):
                if response.event.HasField("finished"):
                    print(headers["traceparent"], pb.Outcome.Name(response.event.finished.outcome))
provider.shutdown()
