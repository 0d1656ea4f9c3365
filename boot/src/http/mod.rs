//! HTTP: scripts, programs, kernels, ISO images; and what a server is told about itself (`metadata.rs`). [`route`] says what a path is, by the verdict that stands behind every other route too; the
//! rest writes it out. A path is taken as it is, but for the colons of its MAC address: no redirect, no decoding, no folder above.

#[cfg(test)]
mod golden;
mod metadata;
mod range;
mod remote;
mod routes;

pub use routes::{Reply, asked, route};

use crate::files::{Files, Program};
use crate::origin::Origins;
use crate::reports::{self, Eyes};
use crate::script;
use crate::seeds::Seeds;
use crate::world::World;
use api::report::HeardBy;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, Method, StatusCode};
use proto::argument_area::{self as area, Places};
use range::{heads, part};
use std::io::SeekFrom;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

/// Read at once of a file.
const CHUNK: u64 = 256 << 10;

pub struct Server {
    pub world: Arc<World>,
    pub seeds: Arc<Seeds>,
    pub boots: Arc<Boots>,
}

/// What of a file of this length is served: status, first byte, length, headers.
pub fn served(headers: &HeaderMap, etag: &str, length: u64) -> (StatusCode, u64, u64, Vec<(http::HeaderName, String)>) {
    heads(part(headers, etag, length), etag, length)
}

/// What servers boot by.
pub struct Boots {
    pub script: script::Config,
    pub files: Arc<Files>,
    pub origins: Arc<Origins>,
    /// Whether servers that no Hardware names are booted.
    pub strangers: bool,
    pub eyes: Eyes,
}

pub async fn serve(listener: tokio::net::TcpListener, server: Server) -> std::io::Result<()> {
    let app = axum::Router::new().fallback(handle).with_state(Arc::new(server));
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await
}

async fn handle(
    State(server): State<Arc<Server>>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response {
    let method = request.method().clone();
    if method != Method::GET && method != Method::HEAD {
        return answer(StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET, HEAD".to_owned())], Body::empty());
    }
    let path = request.uri().path();
    let directory = server.world.directory().borrow().clone();
    let told = metadata::reply((&directory, &server.seeds), path, request.headers(), from.ip()).await;
    if let Some(Reply::Told(_)) = &told
        && let Ok(subject) = directory.by_address(from.ip())
        && let Some(sight) = reports::heard(&subject, from.ip(), HeardBy::Metadata)
    {
        server.boots.eyes.saw(&subject, sight);
    }
    let reply = match told {
        Some(told) => told,
        None => asked(&server.world, &server.boots, path).await,
    };
    let head = method == Method::HEAD;
    tracing::debug!(path, "asked by HTTP");
    match reply {
        Reply::Text(text) => text_answer(StatusCode::OK, text, head),
        Reply::Told(content) => {
            let kept = (CACHE_CONTROL, "no-store".to_owned());
            let headers = [(CONTENT_TYPE, "text/plain".to_owned()), (CONTENT_LENGTH, content.len().to_string()), kept];
            answer(StatusCode::OK, headers, if head { Body::empty() } else { Body::from(content) })
        }
        Reply::Refused(status, why) => {
            tracing::info!(path, why = why.trim_end(), "not served");
            text_answer(status, why, head)
        }
        Reply::Remote { url, arguments } => {
            remote::answer(&server.boots.origins, (url, &arguments), request.headers(), head).await
        }
        Reply::Program(program) => program_answer(&program, request.headers(), head),
        Reply::File(path) => {
            file_answer(&path, None, request.headers(), head).await.unwrap_or_else(|error| unread(&path, &error, head))
        }
        Reply::Image { path, arguments } => {
            let filled = filled(&server, &path, &arguments).await;
            let answered = match filled {
                Ok(filled) => file_answer(&path, Some(filled), request.headers(), head).await,
                Err(error) => Err(error),
            };
            answered.unwrap_or_else(|error| unread(&path, &error, head))
        }
    }
}

fn unread(path: &Path, error: &std::io::Error, head: bool) -> Response {
    tracing::warn!(path = %path.display(), %error, "cannot be served");
    text_answer(StatusCode::INTERNAL_SERVER_ERROR, "the file cannot be read\n".to_owned(), head)
}

/// Where the arguments go in an image, and they.
type Filled = (Places, Arc<[u8]>);

async fn filled(server: &Arc<Server>, path: &Path, arguments: &str) -> std::io::Result<Filled> {
    let (files, image) = (server.boots.files.clone(), path.to_owned());
    let places = tokio::task::spawn_blocking(move || files.places(&image)).await??;
    if places.is_empty() {
        return Err(std::io::Error::other("it has no place for kernel arguments"));
    }
    Ok((places, area::filling(arguments, script::KERNEL_PARAMS).map_err(std::io::Error::other)?))
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

fn program_answer(program: &Program, headers: &HeaderMap, head: bool) -> Response {
    let length = program.length() as u64;
    let etag = program.etag();
    let (status, first, wanted, headers) = served(headers, &etag, length);
    if head {
        return answer(status, headers, Body::empty());
    }
    let chunks = futures::stream::unfold((program.clone(), first, wanted), |(program, at, left)| async move {
        let length = left.min(CHUNK);
        let place = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let chunk = (left > 0).then(|| program.part(place(at), place(length)))?;
        Some((Ok::<_, std::io::Error>(chunk), (program, at + length, left - length)))
    });
    answer(status, headers, Body::from_stream(chunks))
}

async fn file_answer(
    path: &Path,
    filled: Option<Filled>,
    headers: &HeaderMap,
    head: bool,
) -> std::io::Result<Response> {
    let mut file = tokio::fs::File::open(path).await?;
    let meta = file.metadata().await?;
    let changed = meta.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let own =
        filled.as_ref().map(|(_, filling)| format!("-{}", crate::files::short_digest(filling))).unwrap_or_default();
    let etag = format!("\"{:x}-{:x}{own}\"", meta.len(), changed.as_nanos());
    let (status, first, wanted, headers) = served(headers, &etag, meta.len());
    if head || wanted == 0 {
        return Ok(answer(status, headers, Body::empty()));
    }
    file.seek(SeekFrom::Start(first)).await?;
    let chunks =
        futures::stream::try_unfold((file, first, wanted, filled), |(mut file, at, left, filled)| async move {
            if left == 0 {
                return Ok::<_, std::io::Error>(None);
            }
            // With its room from the beginning: it is read at once, not in parts that double.
            let mut chunk = Vec::with_capacity(usize::try_from(left.min(CHUNK)).unwrap_or_default());
            (&mut file).take(left.min(CHUNK)).read_to_end(&mut chunk).await?;
            if chunk.is_empty() {
                // The body ends early, and the client sees that by its length.
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            if let Some((places, filling)) = &filled {
                area::fill(places, filling, at, &mut chunk);
            }
            let read = chunk.len() as u64;
            Ok(Some((Bytes::from(chunk), (file, at + read, left - read, filled))))
        });
    Ok(answer(status, headers, Body::from_stream(chunks)))
}
