//! Reading an URL: http and https, a few redirects, never from https to http.

use crate::feed::Chunk;
use crate::{Error, Kind, Progress, Source};
use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::ClientConfig;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use trust::Bundle;
use url::Url;

const CONNECT: Duration = Duration::from_secs(10);
/// The server says nothing for so long.
const STALL: Duration = Duration::from_secs(60);
const REDIRECTS: usize = 5;
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Sends all of it. Returns when everything was sent, or when the receiver is gone (it says why).
pub(crate) async fn fetch(source: &Source, chunks: &mpsc::Sender<Chunk>, progress: &Progress<'_>) -> Result<(), Error> {
    let url = source.url.as_str();
    let (response, _) = follow(source, None).await?;
    send(url, response, chunks, progress).await
}

async fn send(
    url: &str,
    response: Response<Incoming>,
    chunks: &mpsc::Sender<Chunk>,
    progress: &Progress<'_>,
) -> Result<(), Error> {
    let header = |name| response.headers().get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    let length = header(header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    let measured = length.is_some() || header(header::TRANSFER_ENCODING).is_some();
    if chunks.send(Chunk::Begin { length }).await.is_err() {
        return Ok(());
    }
    let mut body = response.into_body();
    let (mut read, mut told) = (0u64, Instant::now());
    loop {
        let Some(data) = next(url, &mut body, read, length).await? else { break };
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

/// The next bytes of a body, of which `read` have come; `None`: its end.
async fn next(url: &str, body: &mut Incoming, read: u64, length: Option<u64>) -> Result<Option<Bytes>, Error> {
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

/// A file that is read by parts, in any order (RFC 9110, 14). It is the same file throughout.
pub(crate) struct Parts<'a> {
    source: &'a Source,
    /// Where redirects led.
    url: Url,
    pub(crate) length: u64,
    version: Version,
}

/// What would be another one if the file were another one.
#[derive(Debug, PartialEq, Eq)]
struct Version(Option<String>, Option<String>);

impl Version {
    fn of(response: &Response<Incoming>) -> Self {
        let header = |name| response.headers().get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
        Self(header(header::ETAG).map(str::to_owned), header(header::LAST_MODIFIED).map(str::to_owned))
    }
}

impl<'a> Parts<'a> {
    /// `Err`: the server serves no parts, too.
    pub(crate) async fn open(source: &'a Source) -> Result<Self, Error> {
        let (response, url) = follow(source, Some((0, 1))).await?;
        let length = total(source, &response)?;
        Ok(Self { source, url, length, version: Version::of(&response) })
    }

    pub(crate) async fn read(&self, first: u64, length: usize) -> Result<Vec<u8>, Error> {
        let name = self.source.url.as_str();
        let response = get(&self.url, self.source, Some((first, length as u64))).await?;
        if !response.status().is_success() {
            return Err(answered(&self.url, response.status()));
        }
        if total(self.source, &response)? != self.length || Version::of(&response) != self.version {
            return Err(Error::new(Kind::Busy, format!("{}: it was changed while it was read", plain(name))));
        }
        let (mut body, mut bytes) = (response.into_body(), Vec::with_capacity(length));
        while let Some(data) = next(name, &mut body, bytes.len() as u64, Some(length as u64)).await? {
            bytes.extend_from_slice(&data);
            if bytes.len() > length {
                break;
            }
        }
        match bytes.len() == length {
            true => Ok(bytes),
            false => Err(unreachable(name, &format!("{} bytes came of {length} from {first} on", bytes.len()))),
        }
    }

    /// All of it in order, to the same end as [`fetch`].
    pub(crate) async fn whole(&self, chunks: &mpsc::Sender<Chunk>, progress: &Progress<'_>) -> Result<(), Error> {
        let response = get(&self.url, self.source, None).await?;
        match response.status() {
            StatusCode::OK if Version::of(&response) == self.version => {
                send(&self.source.url, response, chunks, progress).await
            }
            StatusCode::OK => {
                let message = format!("{}: it was changed while it was read", plain(&self.source.url));
                Err(Error::new(Kind::Busy, message))
            }
            status => Err(answered(&self.url, status)),
        }
    }
}

/// The whole file's length, of an answer with a part of it.
fn total(source: &Source, response: &Response<Incoming>) -> Result<u64, Error> {
    let range = response.headers().get(header::CONTENT_RANGE).and_then(|value| value.to_str().ok());
    let total = range.and_then(|range| range.rsplit_once('/')?.1.parse().ok());
    total.filter(|_| response.status() == StatusCode::PARTIAL_CONTENT).ok_or_else(|| {
        let message = "is a qcow2 image, and its server serves no parts of files (HTTP Range): serve it by another one, or \
                       convert it to raw";
        Error::new(Kind::Invalid, format!("{} {message}", plain(&source.url)))
    })
}

fn early(read: u64, length: Option<u64>, error: &hyper::Error) -> String {
    let length = length.map(|length| format!(" of {length}")).unwrap_or_default();
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("it ended after {read}{length} bytes: {error}{cause}")
}

/// A part of a file: its first byte and its length.
type Part = (u64, u64);

/// The answer, and where redirects led.
async fn follow(source: &Source, part: Option<Part>) -> Result<(Response<Incoming>, Url), Error> {
    let invalid = |cause: String| Error::new(Kind::Invalid, format!("{}: {cause}", plain(&source.url)));
    let mut url = Url::parse(&source.url).map_err(|error| invalid(error.to_string()))?;
    for _ in 0..=REDIRECTS {
        let response = get(&url, source, part).await?;
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
        return match status {
            StatusCode::OK => Ok((response, url)),
            StatusCode::PARTIAL_CONTENT if part.is_some() => Ok((response, url)),
            status => Err(answered(&url, status)),
        };
    }
    Err(invalid(format!("more than {REDIRECTS} redirects")))
}

fn answered(url: &Url, status: StatusCode) -> Error {
    let class = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Kind::Unauthorized,
        StatusCode::NOT_FOUND | StatusCode::GONE => Kind::NotFound,
        _ => Kind::Busy,
    };
    Error::new(class, format!("{}: the server answered {status}", without_secrets(url)))
}

async fn get(url: &Url, source: &Source, part: Option<Part>) -> Result<Response<Incoming>, Error> {
    let invalid = |cause: String| Error::new(Kind::Invalid, format!("{}: {cause}", without_secrets(url)));
    let uri: Uri = url.as_str().parse().map_err(|error| invalid(format!("{error}")))?;
    let mut request = Request::get(uri).header(header::USER_AGENT, &source.user_agent);
    if let Some((first, length)) = part {
        request = request.header(header::RANGE, format!("bytes={first}-{}", first + length.max(1) - 1));
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| invalid(error.to_string()))?;
    let answered = match url.scheme() {
        "http" => timeout(STALL, http_client().request(request)).await,
        "https" => {
            let client = https_client(source.authorities.as_ref()).map_err(invalid)?;
            timeout(STALL, client.request(request)).await
        }
        other => return Err(invalid(format!("{other} is not served: use http or https"))),
    };
    let answered = answered.map_err(|_| unreachable(url.as_str(), "no answer"))?;
    answered.map_err(|error| {
        if let Some(refusal) = trust::refusal(&error) {
            return unreachable(url.as_str(), &refusal.advice(source.authorities_field));
        }
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        unreachable(url.as_str(), &format!("{error}{cause}"))
    })
}

fn connector() -> HttpConnector {
    let mut http = HttpConnector::new();
    http.set_connect_timeout(Some(CONNECT));
    http
}

fn http_client() -> Client<HttpConnector, Empty<Bytes>> {
    Client::builder(TokioExecutor::new()).build(connector())
}

fn https_client(authorities: Option<&Bundle>) -> Result<Client<HttpsConnector<HttpConnector>, Empty<Bytes>>, String> {
    let mut http = connector();
    http.enforce_http(false);
    let config = match authorities {
        Some(bundle) => bundle.client()?,
        None => {
            let config = ClientConfig::builder().with_native_roots();
            config.map_err(|error| format!("no certificates to trust: {error}"))?.with_no_client_auth()
        }
    };
    let https = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1().wrap_connector(http);
    Ok(Client::builder(TokioExecutor::new()).build(https))
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
