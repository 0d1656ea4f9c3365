//! Requests to the API server, counted below everything that sends one.

use super::seconds;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::time::Instant;
use tower::Service;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    method: String,
    resource: String,
    /// The HTTP status, or `error` where none came.
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Method {
    method: String,
}

#[derive(Clone)]
pub(crate) struct Requests {
    answered: Family<Answered, Counter>,
    times: Family<Method, Histogram>,
}

impl Default for Requests {
    fn default() -> Self {
        Self { answered: Family::default(), times: Family::new_with_constructor(seconds) }
    }
}

impl Requests {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("rest_client_requests", "Requests to the API server", self.answered.clone());
        let help = "Time to the answer's head; of a watch, to its beginning";
        registry.register("rest_client_request_duration_seconds", help, self.times.clone());
    }

    fn count(&self, method: &str, path: &str, code: Option<u16>, began: Instant) {
        let code = code.map_or_else(|| "error".to_owned(), |code| code.to_string());
        let (method, resource) = (method.to_owned(), resource(path));
        self.times.get_or_create(&Method { method: method.clone() }).observe(began.elapsed().as_secs_f64());
        self.answered.get_or_create(&Answered { method, resource, code }).inc();
    }
}

/// The resource of a path, with its sub-resource: `/apis/GROUP/VERSION/namespaces/NS/RESOURCE/NAME/SUB`.
fn resource(path: &str) -> String {
    let mut words = path.split('?').next().unwrap_or_default().split('/').filter(|word| !word.is_empty());
    let skipped = if words.next() == Some("apis") { 2 } else { 1 };
    let words: Vec<&str> = words.skip(skipped).collect();
    let words = match words.as_slice() {
        // A namespace itself has no more than its name, or one of these behind it.
        ["namespaces", _, rest @ ..] if !matches!(rest, [] | ["status" | "finalize"]) => rest,
        words => words,
    };
    match words {
        [] => "none".to_owned(),
        [resource] | [resource, _] => (*resource).to_owned(),
        [resource, _, sub, ..] => format!("{resource}/{sub}"),
    }
}

/// The same client, counted.
pub(crate) fn counted(client: Client, requests: Requests) -> Client {
    let namespace = client.default_namespace().to_owned();
    Client::new(Counted { client, requests }, namespace)
}

struct Counted {
    client: Client,
    requests: Requests,
}

impl Service<Request<Body>> for Counted {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // `Client::send` waits until it is ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (client, requests) = (self.client.clone(), self.requests.clone());
        let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
        Box::pin(async move {
            let began = Instant::now();
            let result = client.send(request).await;
            let code = result.as_ref().ok().map(|response| response.status().as_u16());
            requests.count(&method, &path, code, began);
            result
        })
    }
}

#[cfg(test)]
mod tests {
    use super::resource;

    #[test]
    fn a_path_is_counted_by_its_resource_and_by_no_name() {
        for (path, expected) in [
            ("/api/v1/namespaces/a/secrets/b", "secrets"),
            ("/api/v1/pods", "pods"),
            ("/api/v1/namespaces", "namespaces"),
            ("/api/v1/namespaces/a", "namespaces"),
            ("/api/v1/namespaces/a/status", "namespaces/status"),
            ("/apis/metalplane.io/v1alpha1/namespaces/a/baremetalmachines/b/status", "baremetalmachines/status"),
            ("/apis/metalplane.io/v1alpha1/dpus/b/status", "dpus/status"),
            ("/apis/metalplane.io/v1alpha1/namespaces/a/diskattachments", "diskattachments"),
            ("/version", "none"),
        ] {
            assert_eq!(resource(path), expected, "{path}");
        }
    }
}
