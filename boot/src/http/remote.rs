//! The answer with an image of another server. What cannot be fetched is 502 where the answer has not begun, else its body ends early.

use super::range::{heads, part};
use super::{CHUNK, answer as respond, text_answer};
use crate::origin::{Origins, USER_AGENT};
use crate::script::KERNEL_PARAMS;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use proto::argument_area as area;
use std::sync::Arc;

pub(super) async fn answer(
    origins: &Arc<Origins>,
    (url, arguments): (String, &str),
    headers: &HeaderMap,
    head: bool,
) -> Response {
    let from = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    if from.starts_with(USER_AGENT) {
        let why = "this image's source is a boot service, which fetches it again: name the server that has the file\n";
        return text_answer(StatusCode::LOOP_DETECTED, why.to_owned(), head);
    }
    let filling = match area::filling(arguments, KERNEL_PARAMS) {
        Ok(filling) => filling,
        Err(why) => return text_answer(StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n"), head),
    };
    begun(origins, url, filling, headers, head).await.unwrap_or_else(|why| {
        tracing::warn!(why, "the source of an ISO image");
        text_answer(
            StatusCode::BAD_GATEWAY,
            "the image cannot be read from its server: boot's log says why\n".to_owned(),
            head,
        )
    })
}

async fn begun(
    origins: &Arc<Origins>,
    url: String,
    filling: Arc<[u8]>,
    headers: &HeaderMap,
    head: bool,
) -> Result<Response, String> {
    let image = origins.open(&url).await?;
    let (length, etag) = (image.length(), image.etag(&filling));
    let (status, first, wanted, headers) = heads(part(headers, &etag, length), &etag, length);
    if head || wanted == 0 {
        return Ok(respond(status, headers, Body::empty()));
    }
    let begin = origins.read(&url, &image, &filling, first, wanted.min(CHUNK)).await?;
    let rest = (first + begin.len() as u64, wanted - begin.len() as u64);
    let origins = origins.clone();
    let rest = futures::stream::try_unfold(rest, move |(at, left)| {
        let (origins, url, image, filling) = (origins.clone(), url.clone(), image.clone(), filling.clone());
        async move {
            if left == 0 {
                return Ok(None);
            }
            let length = left.min(CHUNK);
            let chunk = origins.read(&url, &image, &filling, at, length).await.map_err(|why| {
                tracing::warn!(why, "the source of an ISO image");
                std::io::Error::other("the source of the image failed")
            })?;
            Ok(Some((chunk, (at + length, left - length))))
        }
    });
    let begin = futures::stream::once(std::future::ready(Ok::<Bytes, std::io::Error>(begin)));
    Ok(respond(status, headers, Body::from_stream(futures::StreamExt::chain(begin, rest))))
}

#[cfg(test)]
mod tests;
