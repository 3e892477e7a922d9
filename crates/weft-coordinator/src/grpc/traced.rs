//! One span for each call of a kernel or a person, from its request to the end of its response.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures::{FutureExt as _, future::BoxFuture};
use http_body::{Frame, SizeHint};
use tonic::{
    Code, Status,
    body::Body,
    codegen::{
        Bytes,
        http::{HeaderMap, Request, Response},
    },
};
use tower::{Layer, Service};
use weft_core::{fields, trace::TraceContext};
use weft_telemetry::{Kind, Span};

/// Puts a span around every call of `weft.v1`, and the context for what follows from it into the extensions of the
/// request. Links live as long as their node; what rides on them has spans of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traced;

/// See [`Traced`].
#[derive(Debug, Clone)]
pub(crate) struct TracedService<S>(S);

impl<S> Layer<S> for Traced {
    type Service = TracedService<S>;

    fn layer(&self, inner: S) -> TracedService<S> {
        TracedService(inner)
    }
}

impl<S> Service<Request<Body>> for TracedService<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let method = request.uri().path().trim_start_matches('/');
        if !method.starts_with("weft.v1.") {
            return self.0.call(request).boxed();
        }
        let parent = caller(request.headers());
        let span = Span::builder(method, Kind::Server, parent.as_ref())
            .attribute(fields::RPC_SYSTEM_NAME, "grpc")
            .attribute(fields::RPC_METHOD, method)
            .start();
        if let Some(context) = span.context() {
            request.extensions_mut().insert(context.clone());
        }
        let response = self.0.call(request);
        if !span.is_recording() {
            return response.boxed();
        }
        // Before anything is awaited: the caller may go away at any moment.
        let mut call = Call { span, told: false };
        async move {
            let response = response.await?;
            // A refusal says so in its head, and nothing follows.
            call.tell(Status::from_header_map(response.headers()));
            Ok(response.map(|body| Body::new(TracedBody { body, call })))
        }
        .boxed()
    }
}

/// The context that a caller sent.
fn caller(headers: &HeaderMap) -> Option<TraceContext> {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    TraceContext::parse(header("traceparent"), header("tracestate"))
}

/// A call whose response is under way.
struct Call {
    span: Span,
    told: bool,
}

impl Call {
    fn tell(&mut self, status: Option<Status>) {
        let Some(status) = status.filter(|_| !self.told) else { return };
        self.told = true;
        let name = name(status.code());
        self.span.set(fields::RPC_STATUS_CODE, name);
        // What a caller got wrong is no fault of the server.
        if matches!(
            status.code(),
            Code::Unknown
                | Code::DeadlineExceeded
                | Code::Unimplemented
                | Code::Internal
                | Code::Unavailable
                | Code::DataLoss
        ) {
            self.span.fail(name, status.message());
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // The caller went away before the end.
        self.tell(Some(Status::cancelled("")));
    }
}

struct TracedBody {
    body: Body,
    call: Call,
}

impl http_body::Body for TracedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(trailers) = frame.trailers_ref()
        {
            self.call.tell(Status::from_header_map(trailers));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The name of a code as the standard spells it.
fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
