//! HTTP: scripts, programs, kernels. [`route`] says what a path is, by the verdict that stands behind every other route too; the
//! rest writes it out. A path is taken as it is, but for the colons of its MAC address: no redirect, no decoding, no folder above.

use crate::files::Files;
use crate::script;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::header::{ACCEPT_RANGES, ALLOW, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_RANGE, RANGE};
use http::{HeaderMap, Method, StatusCode};
use planner::netboot::{Directory, Verdict, verdict};
use std::io::SeekFrom;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::sync::watch;

/// Read at once of a file.
const CHUNK: u64 = 256 << 10;

pub struct Server {
    pub directory: watch::Receiver<Arc<Directory>>,
    pub script: script::Config,
    pub files: Arc<Files>,
}

/// What a path is.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Text(String),
    Bytes(Bytes),
    File(PathBuf),
    /// With what its reader is told.
    Refused(StatusCode, String),
}

pub fn route(directory: &Directory, script: &script::Config, files: &Files, path: &str) -> Reply {
    let missing = |what: String| Reply::Refused(StatusCode::NOT_FOUND, what);
    let parts: Vec<_> = path.trim_start_matches('/').split('/').filter(|part| !part.is_empty()).collect();
    let (route, mac, name) = match parts.as_slice() {
        ["healthz"] => return Reply::Text("ok\n".to_owned()),
        ["ipxe", "script", mac, "auto.ipxe"] => ("script", *mac, "auto.ipxe"),
        ["ipxe", "binary", mac, name] => ("binary", *mac, *name),
        ["osie", mac, name] => ("osie", *mac, *name),
        _ => return missing("no such path\n".to_owned()),
    };
    let mac = crate::files::mac_of_path(mac);
    let subject = match directory.by_mac(&mac) {
        Ok(subject) => subject,
        Err(why) => return missing(format!("{why}\n")),
    };
    match verdict(&subject) {
        Verdict::Boot => {}
        Verdict::LocalDisk(why) if route == "script" => return Reply::Text(script::local_disk(&why.to_string())),
        Verdict::LocalDisk(why) | Verdict::AddressOnly(why) | Verdict::Nothing(why) => {
            return missing(format!("{why}\n"));
        }
    }
    match route {
        "script" => match script::ipxe(script, &subject) {
            Ok(text) => Reply::Text(text),
            Err(why) => Reply::Refused(StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")),
        },
        "binary" => match files.program(name) {
            Some(bytes) => Reply::Bytes(bytes.clone()),
            None => missing(format!("no program '{name}' is configured\n")),
        },
        _ => match files.in_folder(name) {
            Some(path) => Reply::File(path),
            None => missing(format!("there is no file '{name}'\n")),
        },
    }
}

pub async fn serve(listener: tokio::net::TcpListener, server: Server) -> std::io::Result<()> {
    let app = axum::Router::new().fallback(handle).with_state(Arc::new(server));
    axum::serve(listener, app).await
}

async fn handle(State(server): State<Arc<Server>>, request: Request) -> Response {
    let method = request.method().clone();
    if method != Method::GET && method != Method::HEAD {
        return answer(StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET, HEAD".to_owned())], Body::empty());
    }
    let path = request.uri().path();
    let directory = server.directory.borrow().clone();
    let reply = route(&directory, &server.script, &server.files, path);
    let head = method == Method::HEAD;
    tracing::debug!(path, "asked by HTTP");
    match reply {
        Reply::Text(text) => text_answer(StatusCode::OK, text, head),
        Reply::Refused(status, why) => {
            tracing::info!(path, why = why.trim_end(), "not served");
            text_answer(status, why, head)
        }
        Reply::Bytes(bytes) => bytes_answer(&bytes, request.headers(), head),
        Reply::File(path) => match file_answer(&path, request.headers(), head).await {
            Ok(response) => response,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot be read");
                text_answer(StatusCode::INTERNAL_SERVER_ERROR, "the file cannot be read\n".to_owned(), head)
            }
        },
    }
}

fn answer(status: StatusCode, headers: impl IntoIterator<Item = (http::HeaderName, String)>, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    for (name, value) in headers {
        // Ours are all visible ASCII.
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn text_answer(status: StatusCode, text: String, head: bool) -> Response {
    let headers = [(CONTENT_TYPE, "text/plain".to_owned()), (CONTENT_LENGTH, text.len().to_string())];
    answer(status, headers, if head { Body::empty() } else { Body::from(text) })
}

/// What of a file is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    /// First byte and length.
    Some(u64, u64),
    NotThere,
}

/// One range is served; several, or one that cannot be read, are the whole file (RFC 9110, 14.2).
fn part(headers: &HeaderMap, etag: &str, length: u64) -> Part {
    let text = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    if text(IF_RANGE).is_some_and(|known| known != etag) {
        return Part::Whole;
    }
    let Some((first, last)) = text(RANGE).and_then(|range| range.strip_prefix("bytes=")?.split_once('-')) else {
        return Part::Whole;
    };
    let number = |text: &str| text.parse::<u64>().ok();
    match (first.is_empty(), number(first), last.is_empty(), number(last)) {
        (true, _, _, Some(0)) => Part::NotThere,
        (true, _, _, Some(_)) if length == 0 => Part::NotThere,
        (true, _, _, Some(suffix)) => Part::Some(length.saturating_sub(suffix), suffix.min(length)),
        (_, Some(first), true, _) if first < length => Part::Some(first, length - first),
        (_, Some(first), _, Some(last)) if last < first => Part::Whole,
        (_, Some(first), _, Some(last)) if first < length => Part::Some(first, last.min(length - 1) - first + 1),
        (_, Some(_), true, _) | (_, Some(_), _, Some(_)) => Part::NotThere,
        _ => Part::Whole,
    }
}

fn heads(part: Part, etag: &str, length: u64) -> (StatusCode, u64, u64, Vec<(http::HeaderName, String)>) {
    let mut headers = vec![
        (ETAG, etag.to_owned()),
        (ACCEPT_RANGES, "bytes".to_owned()),
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
    ];
    let (status, first, wanted) = match part {
        Part::Whole => (StatusCode::OK, 0, length),
        Part::Some(first, wanted) => {
            headers.push((CONTENT_RANGE, format!("bytes {first}-{}/{length}", first + wanted - 1)));
            (StatusCode::PARTIAL_CONTENT, first, wanted)
        }
        Part::NotThere => {
            headers.push((CONTENT_RANGE, format!("bytes */{length}")));
            (StatusCode::RANGE_NOT_SATISFIABLE, 0, 0)
        }
    };
    headers.push((CONTENT_LENGTH, wanted.to_string()));
    (status, first, wanted, headers)
}

fn bytes_answer(bytes: &Bytes, headers: &HeaderMap, head: bool) -> Response {
    let etag = format!("\"{:x}-{:p}\"", bytes.len(), bytes.as_ptr());
    let length = bytes.len() as u64;
    let (status, first, wanted, headers) = heads(part(headers, &etag, length), &etag, length);
    let at = |place: u64| usize::try_from(place).unwrap_or(usize::MAX).min(bytes.len());
    let body = bytes.slice(at(first)..at(first + wanted));
    answer(status, headers, if head { Body::empty() } else { Body::from(body) })
}

async fn file_answer(path: &Path, headers: &HeaderMap, head: bool) -> std::io::Result<Response> {
    let mut file = tokio::fs::File::open(path).await?;
    let meta = file.metadata().await?;
    let changed = meta.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let etag = format!("\"{:x}-{:x}\"", meta.len(), changed.as_nanos());
    let (status, first, wanted, headers) = heads(part(headers, &etag, meta.len()), &etag, meta.len());
    if head || wanted == 0 {
        return Ok(answer(status, headers, Body::empty()));
    }
    file.seek(SeekFrom::Start(first)).await?;
    let chunks = futures::stream::try_unfold((file, wanted), |(mut file, left)| async move {
        if left == 0 {
            return Ok::<_, std::io::Error>(None);
        }
        let mut chunk = Vec::new();
        (&mut file).take(left.min(CHUNK)).read_to_end(&mut chunk).await?;
        if chunk.is_empty() {
            // The body ends early, and the client sees that by its length.
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let left = left - chunk.len() as u64;
        Ok(Some((Bytes::from(chunk), (file, left))))
    });
    Ok(answer(status, headers, Body::from_stream(chunks)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let of = |range: &str, if_range: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, range.parse().expect("a value"));
            if let Some(etag) = if_range {
                headers.insert(IF_RANGE, etag.parse().expect("a value"));
            }
            part(&headers, "\"e\"", 10)
        };
        for (range, wanted) in [
            ("bytes=0-0", Part::Some(0, 1)),
            ("bytes=2-", Part::Some(2, 8)),
            ("bytes=2-99", Part::Some(2, 8)),
            ("bytes=-3", Part::Some(7, 3)),
            ("bytes=-30", Part::Some(0, 10)),
            ("bytes=-0", Part::NotThere),
            ("bytes=10-", Part::NotThere),
            ("bytes=10-12", Part::NotThere),
            ("bytes=5-2", Part::Whole),
            ("bytes=0-1,3-4", Part::Whole),
            ("lines=0-1", Part::Whole),
            ("bytes=a-b", Part::Whole),
        ] {
            assert_eq!(of(range, None), wanted, "{range}");
        }
        assert_eq!(of("bytes=0-0", Some("\"e\"")), Part::Some(0, 1));
        assert_eq!(of("bytes=0-0", Some("\"f\"")), Part::Whole);
    }
}
