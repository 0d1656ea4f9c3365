//! Serves the files of one folder by HTTP: the place that a `MachineImage` of the sandbox is imported from.

use std::path::PathBuf;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::io::ReaderStream;

use crate::args::ServeFiles;

/// Read and sent at a time: fewer, larger pieces than the default, for images are gigabytes.
const PIECE: usize = 1 << 20;

pub async fn run(args: &ServeFiles) -> Result<()> {
    let listener = TcpListener::bind(args.listen).await.with_context(|| format!("listen on {}", args.listen))?;
    axum::serve(listener, router(&args.folder)).await.context("serve files")
}

pub fn router(folder: &std::path::Path) -> Router {
    Router::new().route("/{file}", get(file)).with_state(folder.to_owned())
}

/// The route takes one path segment, so a name cannot leave the folder but by `..`, which is no file.
async fn file(State(folder): State<PathBuf>, Path(name): Path<String>) -> Response {
    if name.contains('/') || name.starts_with('.') {
        return StatusCode::NOT_FOUND.into_response();
    }
    let Ok(file) = tokio::fs::File::open(folder.join(&name)).await else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let length = match file.metadata().await {
        Ok(metadata) if metadata.is_file() => metadata.len(),
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    let body = Body::from_stream(ReaderStream::with_capacity(file, PIECE));
    ([(header::CONTENT_LENGTH, length)], body).into_response()
}
