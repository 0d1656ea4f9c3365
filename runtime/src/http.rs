//! Small pages for probes and for Prometheus: /healthz, /readyz and /metrics. One request per connection, each bounded.

use std::convert::Infallible;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Duration, timeout};

/// A request's head is small, and comes at once.
const HEAD: usize = 4096;
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";
const LIMIT: Duration = Duration::from_secs(5);

/// What is answered.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    status: &'static str,
    kind: &'static str,
    body: String,
}

impl Page {
    pub fn ok() -> Self {
        Self { status: "200 OK", kind: PLAIN, body: "ok\n".to_owned() }
    }

    pub fn body(&self) -> &str {
        &self.body
    }

    pub fn not_ready(why: &str) -> Self {
        Self { status: "503 Service Unavailable", kind: PLAIN, body: format!("{why}\n") }
    }

    /// In OpenMetrics.
    pub fn metrics(text: String) -> Self {
        Self { status: "200 OK", kind: OPEN_METRICS, body: text }
    }

    /// `pages`: what there is.
    pub fn not_found(pages: &str) -> Self {
        Self { status: "404 Not Found", kind: PLAIN, body: format!("try {pages}\n") }
    }
}

/// Serves for ever. `page` is asked with the path, and bounds its own time.
pub async fn serve<F, P>(address: SocketAddr, page: F) -> std::io::Result<Infallible>
where
    F: Fn(String) -> P + Clone + Send + 'static,
    P: Future<Output = Page> + Send + 'static,
{
    serve_on(TcpListener::bind(address).await?, page).await
}

async fn serve_on<F, P>(listener: TcpListener, page: F) -> std::io::Result<Infallible>
where
    F: Fn(String) -> P + Clone + Send + 'static,
    P: Future<Output = Page> + Send + 'static,
{
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let page = page.clone();
                // Who does not finish in time, or hangs up, is not worth a line in the log.
                tokio::spawn(async move { answer(stream, page).await.unwrap_or_default() });
            }
            Err(error) => {
                tracing::warn!("accepting an HTTP connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn answer<P: Future<Output = Page>>(mut stream: TcpStream, page: impl Fn(String) -> P) -> std::io::Result<()> {
    let Some(path) = timeout(LIMIT, path(&mut stream)).await?? else { return Ok(()) };
    let Page { status, kind, body } = page(path).await;
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    timeout(LIMIT, async {
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await
    })
    .await?
}

/// `None`: the client hung up.
async fn path(stream: &mut TcpStream) -> std::io::Result<Option<String>> {
    let mut head = Vec::new();
    while head.len() < HEAD && !head.windows(4).any(|window| window == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(None);
        }
    }
    let line = String::from_utf8_lossy(&head);
    let path = line.split_whitespace().nth(1).and_then(|path| path.split('?').next()).unwrap_or_default();
    Ok(Some(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_path_gets_its_page_without_what_follows_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("an address");
        let page = |path: String| async move {
            match path.as_str() {
                "/metrics" => Page::metrics("# EOF\n".to_owned()),
                "/readyz" => Page::not_ready("not yet"),
                _ => Page::not_found("/metrics"),
            }
        };
        let serving = tokio::spawn(serve_on(listener, page));
        for (asked, status, body) in
            [("/metrics?x=1", "200 OK", "# EOF\n"), ("/readyz", "503 ", "not yet\n"), ("/", "404 ", "try /metrics\n")]
        {
            let mut stream = TcpStream::connect(address).await.expect("connect");
            stream.write_all(format!("GET {asked} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.expect("send");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("an answer that ends");
            let (head, told) = answer.split_once("\r\n\r\n").expect("a head and a body");
            assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{asked}: {head}");
            assert!(head.contains(&format!("Content-Length: {}", body.len())), "{asked}: {head}");
            assert_eq!(told, body, "{asked}");
        }
        serving.abort();
    }
}
