//! Reading an URL: http and https, a few redirects, never from https to http. What is broken off goes on where it was, if a checksum
//! tells at the end whether it was the same file throughout.

use crate::client::{self, next};
use crate::feed::Chunk;
use crate::{Error, Kind, Progress, Source};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use hyper::body::Incoming;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use url::Url;

const REDIRECTS: usize = 5;
const TELL_EVERY: Duration = Duration::from_secs(1);
/// How often in a row a file is asked for again of which nothing more comes, and how long before each time.
pub(crate) const AGAIN: u32 = 3;
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// Sends all of it. Returns when everything was sent, or when the receiver is gone (it says why).
pub(crate) async fn fetch(source: &Source, chunks: &mpsc::Sender<Chunk>, progress: &Progress<'_>) -> Result<(), Error> {
    let (response, _) = follow(source, &HeaderMap::new()).await?;
    send(source, response, chunks, progress).await
}

async fn send(
    source: &Source,
    response: Response<Incoming>,
    chunks: &mpsc::Sender<Chunk>,
    progress: &Progress<'_>,
) -> Result<(), Error> {
    let header = |name| response.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let length = header(header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    let measured = length.is_some() || header(header::TRANSFER_ENCODING).is_some();
    let version = Version::of(&response);
    progress.of.store(length.unwrap_or_default(), Ordering::Relaxed);
    if chunks.send(Chunk::Begin { length }).await.is_err() {
        return Ok(());
    }
    let mut body = response.into_body();
    let (mut read, mut told, mut tries) = (0u64, Instant::now(), 0);
    loop {
        let cause = match next(&source.url, &mut body, read, length).await {
            Ok(Some(data)) => {
                (read, tries) = (read + data.len() as u64, 0);
                if chunks.send(Chunk::Data(data)).await.is_err() {
                    return Ok(());
                }
                if told.elapsed() >= TELL_EVERY {
                    told = Instant::now();
                    progress.bytes.store(read, Ordering::Relaxed);
                    progress.wake.notify_one();
                }
                continue;
            }
            Ok(None) if length.is_none_or(|length| length == read) => break,
            Ok(None) => {
                unreachable(&source.url, &format!("it ended after {read} of {} bytes", length.unwrap_or_default()))
            }
            Err(error) => error,
        };
        body = rest(source, read, length, &version, &mut tries, cause).await?;
    }
    // A writer that ended early says why itself.
    let _ = chunks.send(Chunk::End { measured }).await;
    Ok(())
}

/// What is missing of a file that was broken off. Only of one with a checksum: else nothing tells whether both halves are of one file.
async fn rest(
    source: &Source,
    read: u64,
    length: Option<u64>,
    version: &Version,
    tries: &mut u32,
    cause: Error,
) -> Result<Incoming, Error> {
    let Some(length) = length.filter(|length| source.checksum.is_some() && read > 0 && read < *length) else {
        return Err(cause);
    };
    while *tries < AGAIN {
        *tries += 1;
        sleep(PAUSE * *tries).await;
        match follow(source, &range(read, length - read)).await {
            // Where the server serves no parts, or another file by now, what there was does not go on.
            Ok((response, _)) => {
                let goes_on = begins(&response) == Some(read) && Version::of(&response) == *version;
                return if goes_on { Ok(response.into_body()) } else { Err(cause) };
            }
            Err(error) if error.kind == Kind::Unreachable => {}
            Err(_) => return Err(cause),
        }
    }
    Err(cause)
}

/// A file that is read by parts, in any order (RFC 9110, 14). It is the same file throughout.
pub struct Parts {
    source: Source,
    /// Where redirects led.
    url: Url,
    length: u64,
    version: Version,
}

/// What would be another one if the file were another one.
#[derive(Debug, PartialEq, Eq)]
struct Version(Option<String>, Option<String>);

impl Version {
    fn of(response: &Response<Incoming>) -> Self {
        let header = |name| response.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        Self(header(header::ETAG).map(str::to_owned), header(header::LAST_MODIFIED).map(str::to_owned))
    }
}

impl Parts {
    /// `Err`: the server serves no parts, too.
    pub async fn open(source: Source) -> Result<Self, Error> {
        let (response, url) = follow(&source, &range(0, 1)).await?;
        let length = total(&source, &response)?;
        Ok(Self { url, length, version: Version::of(&response), source })
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    /// What its server says that would be another one if the file were; `None`: nothing.
    pub fn version(&self) -> Option<String> {
        let Version(etag, time) = &self.version;
        let said = [etag, time].map(|text| text.as_deref().unwrap_or_default());
        said.iter().any(|text| !text.is_empty()).then(|| said.join("\n"))
    }

    pub async fn read(&self, first: u64, length: usize) -> Result<Vec<u8>, Error> {
        let name = self.source.url.as_str();
        let response = client::get(&self.source, &self.url, &range(first, length as u64)).await?;
        if !response.status().is_success() {
            return Err(answered(&self.url, response.status()));
        }
        if total(&self.source, &response)? != self.length || Version::of(&response) != self.version {
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
        let response = client::get(&self.source, &self.url, &HeaderMap::new()).await?;
        match response.status() {
            StatusCode::OK if Version::of(&response) == self.version => {
                send(&self.source, response, chunks, progress).await
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
        let message = "it is read by parts, and its server serves none (HTTP Range): serve it by another one, or convert \
                       qcow2 to raw";
        Error::new(Kind::Invalid, format!("{}: {message}", plain(&source.url)))
    })
}

/// The first byte of the part of a file that an answer has.
fn begins(response: &Response<Incoming>) -> Option<u64> {
    let range = response.headers().get(header::CONTENT_RANGE)?.to_str().ok()?;
    let first = range.strip_prefix("bytes ")?.split('-').next()?.parse().ok();
    first.filter(|_| response.status() == StatusCode::PARTIAL_CONTENT)
}

/// The header that asks for a part of a file.
fn range(first: u64, length: u64) -> HeaderMap {
    let value = HeaderValue::try_from(format!("bytes={first}-{}", first + length.max(1) - 1));
    value.into_iter().map(|value| (header::RANGE, value)).collect()
}

/// The answer, and where redirects led.
pub(crate) async fn follow(source: &Source, headers: &HeaderMap) -> Result<(Response<Incoming>, Url), Error> {
    let refused = |cause: String| Error::new(Kind::Invalid, format!("{}: {cause}", plain(&source.url)));
    let mut url = Url::parse(&source.url).map_err(|error| refused(error.to_string()))?;
    for _ in 0..=REDIRECTS {
        let response = client::get(source, &url, headers).await?;
        let status = response.status();
        if status.is_redirection() {
            let target = response.headers().get(header::LOCATION).and_then(|location| location.to_str().ok());
            let target = target.and_then(|target| url.join(target).ok());
            let target = target.ok_or_else(|| refused(format!("{status} without a usable Location")))?;
            if url.scheme() == "https" && target.scheme() != "https" {
                return Err(refused(format!("redirected from https to {}", target.scheme())));
            }
            url = target;
            continue;
        }
        return match status {
            StatusCode::OK => Ok((response, url)),
            StatusCode::PARTIAL_CONTENT if headers.contains_key(header::RANGE) => Ok((response, url)),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => match &source.access {
                Some(access) if access.covers(&url) => Err(access.refused(&url, status)),
                _ => Err(answered(&url, status)),
            },
            status => Err(answered(&url, status)),
        };
    }
    Err(refused(format!("more than {REDIRECTS} redirects")))
}

pub(crate) fn answered(url: &Url, status: StatusCode) -> Error {
    let class = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Kind::Unauthorized,
        StatusCode::NOT_FOUND | StatusCode::GONE => Kind::NotFound,
        _ => Kind::Busy,
    };
    Error::new(class, format!("{}: the server answered {status}", without_secrets(url)))
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

pub(crate) fn unreachable(url: &str, cause: &str) -> Error {
    Error::new(Kind::Unreachable, format!("{}: {cause}", plain(url)))
}

pub(crate) fn invalid(url: &Url, cause: &str) -> Error {
    Error::new(Kind::Invalid, format!("{}: {cause}", without_secrets(url)))
}
