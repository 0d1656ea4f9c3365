//! Requests in, answers out, as one process sees the API server.

use super::path::{self, Target};
use super::store::{Answer, Refusal};
use super::{Server, watch};
use crate::sim::process::Process;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// How long a request tries that cannot get through.
const CUT: Duration = Duration::from_secs(2);

type Stream = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// For nobody in particular: the test itself, whose requests never fail.
pub fn client(server: &Arc<Server>) -> kube::Client {
    kube::Client::new(Service { server: server.clone(), process: None }, "default")
}

pub fn client_of(process: &Arc<Process>) -> kube::Client {
    kube::Client::new(Service { server: process.scene.server.clone(), process: Some(process.clone()) }, "default")
}

#[derive(Clone)]
struct Service {
    server: Arc<Server>,
    process: Option<Arc<Process>>,
}

impl tower::Service<Request<Body>> for Service {
    type Response = Response<Stream>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Stream>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.respond(request).await) })
    }
}

impl Service {
    async fn respond(self, request: Request<Body>) -> Response<Stream> {
        let (parts, body) = request.into_parts();
        let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let Some(target) = path::parse(&parts.uri) else {
            return answer(Err(Refusal::new(404, "NotFound", format!("no path {}", parts.uri))));
        };
        if self.process.as_ref().is_some_and(|process| process.is_cut()) {
            tokio::time::sleep(CUT).await;
            return answer(Err(Refusal::new(503, "ServiceUnavailable", "there is no way to the API server")));
        }
        let wants = |key: &str| target.query.get(key).is_some_and(|text| text == "true" || text == "1");
        if wants("watch") {
            return self.watch(&target).await;
        }
        let kind =
            parts.headers.get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let (server, method, kind) = (self.server.clone(), parts.method.clone(), kind.to_owned());
        let what = format!(
            "{method} {}{}",
            Id(&target, &body),
            target.subresource.as_ref().map(|sub| format!(" {sub}")).unwrap_or_default()
        );
        let is_delete = method == http::Method::DELETE;
        let counted = method != http::Method::GET && !is_time(&target.id.resource, target.subresource.as_deref());
        if let Some(process) = &self.process {
            let sub = target.subresource.as_ref().map(|sub| format!(" {sub}")).unwrap_or_default();
            server.count(&process.name, format!("{method} {}{sub}", target.id.resource));
        }
        let Some(process) = &self.process else {
            return deleted(is_delete, server.answer(&method, &target, &kind, body));
        };
        if !counted {
            process.travel().await;
            let result = server.answer(&method, &target, &kind, body);
            process.travel().await;
            return deleted(is_delete, result);
        }
        let act = async move { server.answer(&method, &target, &kind, body) };
        let lost =
            || Err(Refusal::new(504, "Timeout", "the server was unable to return a response in the time allotted"));
        let refused = || Err(Refusal::new(409, "Conflict", "the object has been modified"));
        deleted(is_delete, process.effect(&what, act, lost, refused).await)
    }

    async fn watch(&self, target: &Target) -> Response<Stream> {
        let shared = match &self.process {
            Some(process) => {
                process.travel().await;
                process.watches.clone()
            }
            None => watch::Shared { manners: Arc::default(), random: crate::sim::random::Random::new(0), cut: None },
        };
        let lines = watch::open(&self.server, target, shared);
        respond(StatusCode::OK, lines.map(|line| Ok(Frame::data(line))).boxed())
    }
}

struct Id<'a>(&'a Target, &'a Value);

impl std::fmt::Display for Id<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let id = &self.0.id;
        let named = self.1.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        write!(f, "{} {}/{}", id.resource, id.namespace, if id.name.is_empty() { named } else { &id.name })
    }
}

/// Written for time's sake alone, or for people.
fn is_time(resource: &str, subresource: Option<&str>) -> bool {
    resource == "coordination.k8s.io/leases" || resource.ends_with("events") || subresource == Some("token")
}

/// What is gone is answered with a Status, what stays because of a finalizer with the object.
fn deleted(is_delete: bool, result: Answer) -> Response<Stream> {
    // A pod has no finalizer of ours, and stays until kubelet has ended it.
    let is_pod = |object: &Value| object["kind"] == "Pod" && object.pointer("/metadata/deletionTimestamp").is_some();
    let stays = |object: &Value| object.pointer("/metadata/finalizers").is_some() || is_pod(object);
    match result {
        Ok(object) if is_delete && !stays(&object) => {
            answer(Ok(Arc::new(json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success"}))))
        }
        result => answer(result),
    }
}

fn answer(result: Answer) -> Response<Stream> {
    let (code, value) = match result {
        Ok(value) => (200, value),
        Err(refusal) => {
            let status = json!({
                "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
                "code": refusal.code, "reason": refusal.reason, "message": refusal.message,
            });
            (refusal.code, Arc::new(status))
        }
    };
    let body = Bytes::from(value.to_string());
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    respond(code, stream::once(async move { Ok(Frame::data(body)) }).boxed())
}

fn respond(code: StatusCode, lines: BoxStream<'static, Result<Frame<Bytes>, Infallible>>) -> Response<Stream> {
    let mut response = Response::new(StreamBody::new(lines));
    *response.status_mut() = code;
    response
}
