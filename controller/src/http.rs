//! /healthz, /readyz and /metrics.

use crate::Controller;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Duration, timeout};

/// A request's head is small, and comes at once.
const HEAD: usize = 4096;
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const LIMIT: Duration = Duration::from_secs(5);

pub async fn serve(address: SocketAddr, controller: Arc<Controller>) -> std::io::Result<Infallible> {
    let listener = TcpListener::bind(address).await?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let controller = controller.clone();
                tokio::spawn(async move {
                    // Who does not finish in time, or hangs up, is not worth a line in the log.
                    let _ = timeout(LIMIT, answer(stream, &controller)).await;
                });
            }
            Err(error) => {
                tracing::warn!("accepting on {address}: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn answer(mut stream: TcpStream, controller: &Controller) -> std::io::Result<()> {
    let mut head = Vec::new();
    while head.len() < HEAD && !head.windows(4).any(|window| window == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let line = String::from_utf8_lossy(&head);
    let path = line.split_whitespace().nth(1).and_then(|path| path.split('?').next()).unwrap_or_default();
    let (status, body) = match path {
        "/healthz" | "/livez" => ("200 OK", "ok\n".to_owned()),
        "/readyz" if controller.world.is_ready() => ("200 OK", "ok\n".to_owned()),
        "/readyz" => ("503 Service Unavailable", "the caches are not filled yet\n".to_owned()),
        "/metrics" => ("200 OK", controller.numbers()),
        _ => ("404 Not Found", "try /healthz, /readyz or /metrics\n".to_owned()),
    };
    let kind = if path == "/metrics" { OPEN_METRICS } else { "text/plain; charset=utf-8" };
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}
