//! One request to a server, and the bytes of its answer.

use crate::fetch::{invalid, unreachable};
use crate::{Authorities, Error, Source};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::TokioExecutor;
use rustls::ClientConfig;
use std::time::Duration;
use tokio::time::timeout;
use tower_service::Service;
use url::Url;

pub(crate) const CONNECT: Duration = Duration::from_secs(10);
/// The server says nothing for so long.
const STALL: Duration = Duration::from_secs(60);

/// With what the server's registry wants to know of who asks, if the source is one's.
pub(crate) async fn get(source: &Source, url: &Url, headers: &HeaderMap) -> Result<Response<Incoming>, Error> {
    let Some(access) = source.access.as_ref().filter(|access| access.covers(url)) else {
        return request(source, url, headers).await;
    };
    let response = request(source, url, &access.signed(headers)).await?;
    if response.status() != StatusCode::UNAUTHORIZED {
        return Ok(response);
    }
    access.answer(source, response.headers()).await?;
    request(source, url, &access.signed(headers)).await
}

pub(crate) async fn request(source: &Source, url: &Url, headers: &HeaderMap) -> Result<Response<Incoming>, Error> {
    let uri: Uri = url.as_str().parse().map_err(|error| invalid(url, &format!("{error}")))?;
    let mut request = Request::get(uri).header(header::USER_AGENT, &source.user_agent);
    if let Some(all) = request.headers_mut() {
        all.extend(headers.clone());
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| invalid(url, &error.to_string()))?;
    let proxy = source.proxies.of(request.uri());
    let by = proxy.as_ref().map(|proxy| format!("by {}: ", proxy.name())).unwrap_or_default();
    let asked = async {
        match (url.scheme(), &proxy) {
            ("http", None) => http_client().request(request).await.map_err(|error| failed(source, &error)),
            ("http", Some(proxy)) => proxy.request(request).await.map_err(|error| failed(source, &error)),
            (_, None) => {
                let client = https_client(&source.authorities, connector()).map_err(Failed::Invalid)?;
                client.request(request).await.map_err(|error| failed(source, &error))
            }
            (_, Some(proxy)) => {
                let tunnel = proxy.tunnel(connector());
                let client = https_client(&source.authorities, tunnel).map_err(Failed::Invalid)?;
                client.request(request).await.map_err(|error| failed(source, &error))
            }
        }
    };
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid(url, &format!("{} is not served: use http or https", url.scheme())));
    }
    let answered = timeout(STALL, asked).await;
    let answered = answered.map_err(|_| unreachable(url.as_str(), &format!("{by}no answer")))?;
    answered.map_err(|failed| match failed {
        Failed::Invalid(cause) => invalid(url, &cause),
        Failed::Unreachable(cause) => unreachable(url.as_str(), &format!("{by}{cause}")),
    })
}

enum Failed {
    Invalid(String),
    Unreachable(String),
}

fn failed(source: &Source, error: &(dyn std::error::Error + 'static)) -> Failed {
    if let Some(refusal) = trust::refusal(error) {
        return Failed::Unreachable(refusal.advice(source.authorities_field));
    }
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    Failed::Unreachable(format!("{error}{cause}"))
}

/// The next bytes of a body, of which `read` have come; `None`: its end.
pub(crate) async fn next(
    url: &str,
    body: &mut Incoming,
    read: u64,
    length: Option<u64>,
) -> Result<Option<Bytes>, Error> {
    loop {
        let frame = timeout(STALL, body.frame()).await;
        let frame = frame.map_err(|_| unreachable(url, &format!("nothing came for {} s", STALL.as_secs())))?;
        let Some(frame) = frame else { return Ok(None) };
        let frame = frame.map_err(|error| unreachable(url, &early(read, length, &error)))?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
}

/// All of a body that is no image.
pub(crate) async fn whole(url: &Url, response: Response<Incoming>, limit: usize) -> Result<Vec<u8>, Error> {
    let (mut body, mut bytes) = (response.into_body(), Vec::new());
    while let Some(data) = next(url.as_str(), &mut body, bytes.len() as u64, None).await? {
        bytes.extend_from_slice(&data);
        if bytes.len() > limit {
            return Err(invalid(url, &format!("the answer is larger than {limit} bytes")));
        }
    }
    Ok(bytes)
}

fn early(read: u64, length: Option<u64>, error: &hyper::Error) -> String {
    let length = length.map(|length| format!(" of {length}")).unwrap_or_default();
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("it ended after {read}{length} bytes: {error}{cause}")
}

fn connector() -> HttpConnector {
    let mut http = HttpConnector::new();
    http.set_connect_timeout(Some(CONNECT));
    // The TLS around it is for the scheme.
    http.enforce_http(false);
    http
}

fn http_client() -> Client<HttpConnector, Empty<Bytes>> {
    Client::builder(TokioExecutor::new()).build(connector())
}

/// `by`: what opens the connection in which TLS is spoken.
fn https_client<C>(authorities: &Authorities, by: C) -> Result<Client<HttpsConnector<C>, Empty<Bytes>>, String>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Connection + Unpin + Send + 'static,
    C::Future: Send + 'static,
    C::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let config = match authorities {
        Authorities::These(bundle) => bundle.client()?,
        Authorities::Public => {
            let config = ClientConfig::builder().with_native_roots();
            config.map_err(|error| format!("no certificates to trust: {error}"))?.with_no_client_auth()
        }
        Authorities::NotAsked => trust::unverified()?,
    };
    let https = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1().wrap_connector(by);
    Ok(Client::builder(TokioExecutor::new()).build(https))
}
