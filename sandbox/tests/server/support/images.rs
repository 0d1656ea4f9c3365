//! An HTTP server that a BMC reads images from: the files of a folder, and `secret.iso` for who says that he is ann.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;

/// "ann:hunter2".
const ANN: &str = "Basic YW5uOmh1bnRlcjI=";

async fn secret(headers: HeaderMap) -> Result<&'static str, StatusCode> {
    let authorization = headers.get("authorization").and_then(|value| value.to_str().ok());
    if authorization == Some(ANN) { Ok("CD001") } else { Err(StatusCode::UNAUTHORIZED) }
}

/// Serves until the test program ends; gives the port.
pub fn serve(folder: &Path) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listen for a BMC");
    let port = listener.local_addr().expect("an address").port();
    listener.set_nonblocking(true).expect("for tokio");
    let router = sandbox::file_server::router(folder).route("/secret.iso", get(secret));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            axum::serve(listener, router).await
        })
    });
    port
}
