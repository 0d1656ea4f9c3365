//! Reading an URL: http and https, a few redirects, never from https to http.

use crate::feed::Chunk;
use crate::{Error, Kind, Progress, Source};
use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::ClientConfig;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use url::Url;

const CONNECT: Duration = Duration::from_secs(10);
/// The server says nothing for so long.
const STALL: Duration = Duration::from_secs(60);
const REDIRECTS: usize = 5;
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Sends all of it. Returns when everything was sent, or when the receiver is gone (it says why).
pub(crate) async fn fetch(source: &Source, chunks: &mpsc::Sender<Chunk>, progress: &Progress<'_>) -> Result<(), Error> {
    let url = source.url.as_str();
    let response = follow(source).await?;
    let header = |name| response.headers().get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    let length = header(header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    let measured = length.is_some() || header(header::TRANSFER_ENCODING).is_some();
    if chunks.send(Chunk::Begin { length }).await.is_err() {
        return Ok(());
    }
    let mut body = response.into_body();
    let (mut read, mut told) = (0u64, Instant::now());
    loop {
        let frame = timeout(STALL, body.frame()).await;
        let frame = frame.map_err(|_| unreachable(url, &format!("nothing came for {} s", STALL.as_secs())))?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| unreachable(url, &early(read, length, &error)))?;
        let Ok(data) = frame.into_data() else { continue };
        read += data.len() as u64;
        if chunks.send(Chunk::Data(data)).await.is_err() {
            return Ok(());
        }
        if told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            progress.bytes.store(read, Ordering::Relaxed);
            progress.wake.notify_one();
        }
    }
    if let Some(length) = length.filter(|length| *length != read) {
        return Err(unreachable(url, &format!("it ended after {read} of {length} bytes")));
    }
    // A writer that ended early says why itself.
    let _ = chunks.send(Chunk::End { measured }).await;
    Ok(())
}

fn early(read: u64, length: Option<u64>, error: &hyper::Error) -> String {
    let length = length.map(|length| format!(" of {length}")).unwrap_or_default();
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("it ended after {read}{length} bytes: {error}{cause}")
}

async fn follow(source: &Source) -> Result<Response<Incoming>, Error> {
    let invalid = |cause: String| Error::new(Kind::Invalid, format!("{}: {cause}", plain(&source.url)));
    let mut url = Url::parse(&source.url).map_err(|error| invalid(error.to_string()))?;
    for _ in 0..=REDIRECTS {
        let response = get(&url, source.user_agent).await?;
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
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Kind::Unauthorized,
            StatusCode::NOT_FOUND | StatusCode::GONE => Kind::NotFound,
            _ => Kind::Busy,
        };
        return Err(Error::new(class, format!("{}: the server answered {status}", without_secrets(&url))));
    }
    Err(invalid(format!("more than {REDIRECTS} redirects")))
}

async fn get(url: &Url, user_agent: &str) -> Result<Response<Incoming>, Error> {
    let invalid = |cause: String| Error::new(Kind::Invalid, format!("{}: {cause}", without_secrets(url)));
    let uri: Uri = url.as_str().parse().map_err(|error| invalid(format!("{error}")))?;
    let request = Request::get(uri)
        .header(header::USER_AGENT, user_agent)
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

/// The URL as a message may have it.
pub fn plain(url: &str) -> String {
    Url::parse(url).map_or_else(|_| "the URL".to_owned(), |url| without_secrets(&url))
}

fn unreachable(url: &str, cause: &str) -> Error {
    Error::new(Kind::Unreachable, format!("{}: {cause}", plain(url)))
}
