//! Reading an URL: http and https, a few redirects, never from https to http.

use super::sink::Chunk;
use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ports::{ErrorClass, PortError};
use rustls::ClientConfig;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout};
use url::Url;

const CONNECT: Duration = Duration::from_secs(10);
/// The server says nothing for so long.
const STALL: Duration = Duration::from_secs(60);
const REDIRECTS: usize = 5;
const TELL_EVERY: Duration = Duration::from_secs(1);

type Chunks = mpsc::Sender<Chunk>;

/// Sends all of it. Returns when everything was sent, or when the receiver is gone (it says why).
pub(super) async fn fetch(
    url: &str,
    size_bytes: u64,
    chunks: &Chunks,
    progress: &AtomicU64,
    wake: &Notify,
) -> Result<(), PortError> {
    let response = follow(url).await?;
    let length = response.headers().get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if let Some(length) = length.filter(|length| *length > size_bytes) {
        return Err(too_large(url, Some(length), size_bytes));
    }
    let mut body = response.into_body();
    let (mut read, mut told) = (0u64, Instant::now());
    loop {
        let frame = timeout(STALL, body.frame()).await;
        let frame = frame.map_err(|_| unreachable(url, &format!("nothing came for {} s", STALL.as_secs())))?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| unreachable(url, &format!("after {read} bytes: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        read += data.len() as u64;
        if read > size_bytes {
            return Err(too_large(url, None, size_bytes));
        }
        if chunks.send(Chunk::Data(data)).await.is_err() {
            return Ok(());
        }
        if told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            progress.store(read, Ordering::Relaxed);
            wake.notify_one();
        }
    }
    match length {
        Some(length) if length != read => Err(unreachable(url, &format!("it ended after {read} of {length} bytes"))),
        _ => Ok(()),
    }
}

async fn follow(first: &str) -> Result<Response<Incoming>, PortError> {
    let invalid = |cause: String| PortError::new(ErrorClass::Invalid, format!("{first}: {cause}"));
    let mut url = Url::parse(first).map_err(|error| invalid(error.to_string()))?;
    for _ in 0..=REDIRECTS {
        let response = get(&url).await?;
        let status = response.status();
        if status.is_redirection() {
            let target = response.headers().get(header::LOCATION).and_then(|location| location.to_str().ok());
            let target = target.and_then(|target| url.join(target).ok());
            let target = target.ok_or_else(|| invalid(format!("{status} without a usable Location")))?;
            if url.scheme() == "https" && target.scheme() != "https" {
                return Err(invalid(format!("redirected from https to {}", target.scheme())));
            }
            url = target;
            continue;
        }
        let class = match status {
            StatusCode::OK => return Ok(response),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ErrorClass::Unauthorized,
            StatusCode::NOT_FOUND | StatusCode::GONE => ErrorClass::NotFound,
            _ => ErrorClass::Busy,
        };
        return Err(PortError::new(class, format!("{}: the server answered {status}", without_secrets(&url))));
    }
    Err(invalid(format!("more than {REDIRECTS} redirects")))
}

async fn get(url: &Url) -> Result<Response<Incoming>, PortError> {
    let invalid = |cause: String| PortError::new(ErrorClass::Invalid, format!("{}: {cause}", without_secrets(url)));
    let uri: Uri = url.as_str().parse().map_err(|error| invalid(format!("{error}")))?;
    let request = Request::get(uri)
        .header(header::USER_AGENT, concat!("metalplane-dpu-agent/", env!("CARGO_PKG_VERSION")))
        .body(Empty::<Bytes>::new())
        .map_err(|error| invalid(error.to_string()))?;
    let mut http = HttpConnector::new();
    http.set_connect_timeout(Some(CONNECT));
    let answered = match url.scheme() {
        "http" => timeout(STALL, Client::builder(TokioExecutor::new()).build(http).request(request)).await,
        "https" => {
            http.enforce_http(false);
            let roots = ClientConfig::builder().with_native_roots();
            let config = roots.map_err(|error| invalid(format!("no certificates to trust: {error}")))?;
            let https = HttpsConnectorBuilder::new()
                .with_tls_config(config.with_no_client_auth())
                .https_only()
                .enable_http1()
                .wrap_connector(http);
            timeout(STALL, Client::builder(TokioExecutor::new()).build(https).request(request)).await
        }
        other => return Err(invalid(format!("{other} is not served: use http or https"))),
    };
    let answered = answered.map_err(|_| unreachable(url.as_str(), "no answer"))?;
    answered.map_err(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        unreachable(url.as_str(), &format!("{error}{cause}"))
    })
}

/// Signed URLs have credentials in the query, others in the user part: neither belongs into a message.
fn without_secrets(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{host}{port}{}", url.scheme(), url.path())
}

fn plain(url: &str) -> String {
    Url::parse(url).map_or_else(|_| "the URL".to_owned(), |url| without_secrets(&url))
}

fn unreachable(url: &str, cause: &str) -> PortError {
    PortError::new(ErrorClass::Unreachable, format!("{}: {cause}", plain(url)))
}

fn too_large(url: &str, length: Option<u64>, size_bytes: u64) -> PortError {
    let length = length.map_or_else(|| "more".to_owned(), |length| format!("{length} bytes"));
    let message = format!("{} has {length}, the volume has {size_bytes} bytes: ask for a larger size", plain(url));
    PortError::new(ErrorClass::Invalid, message)
}
