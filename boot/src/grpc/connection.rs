//! One port for agents that speak TLS and for those that do not. The first byte tells: a TLS record of a handshake begins with 22 (RFC
//! 8446, 5.1), HTTP/2 in the clear with the `P` of its preface (RFC 9113, 3.4).

use futures::{Stream, StreamExt};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;
use trust::pin;

const HANDSHAKE: u8 = 22;
/// For the first byte and the handshake.
const LIMIT: Duration = Duration::from_secs(10);
/// After a connection that the system did not give.
const AGAIN: Duration = Duration::from_millis(100);
/// Handshakes at once: who opens more waits.
const AT_ONCE: usize = 512;

/// Whom a call comes from.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    pub address: Option<SocketAddr>,
    /// Of the key that its certificate is of, which it has shown to have.
    pub key: Option<pin::Pin>,
}

impl Caller {
    pub fn of<T>(request: &tonic::Request<T>) -> Self {
        request.extensions().get::<Self>().cloned().unwrap_or_default()
    }
}

pub enum Connection {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Those that said what they speak. `tls`: `None` where it is not spoken.
pub fn accept(listener: TcpListener, tls: Option<rustls::ServerConfig>) -> impl Stream<Item = io::Result<Connection>> {
    let tls = tls.map(|tls| TlsAcceptor::from(Arc::new(tls)));
    let connections = tokio_stream::wrappers::TcpListenerStream::new(listener);
    let begun = connections.map(move |stream| {
        let tls = tls.clone();
        async move {
            let stream = match stream {
                Ok(stream) => stream,
                // Too many open files, say: the next one would fail at once too.
                Err(error) => {
                    tokio::time::sleep(AGAIN).await;
                    return refused(None, &error);
                }
            };
            let from = stream.peer_addr().ok();
            match timeout(LIMIT, begin(stream, tls)).await {
                Ok(Ok(connection)) => Some(connection),
                Ok(Err(error)) => refused(from, &error),
                Err(_) => refused(from, &io::ErrorKind::TimedOut.into()),
            }
        }
    });
    begun.buffer_unordered(AT_ONCE).filter_map(|connection| std::future::ready(connection.map(Ok)))
}

fn refused(from: Option<SocketAddr>, error: &io::Error) -> Option<Connection> {
    tracing::debug!(?from, %error, "a connection of an agent did not begin");
    None
}

async fn begin(stream: TcpStream, tls: Option<TlsAcceptor>) -> io::Result<Connection> {
    stream.set_nodelay(true)?;
    let mut first = [0];
    let is_tls = stream.peek(&mut first).await? == 1 && first[0] == HANDSHAKE;
    match tls {
        Some(tls) if is_tls => Ok(Connection::Tls(Box::new(tls.accept(stream).await?))),
        _ => Ok(Connection::Plain(stream)),
    }
}

impl Connected for Connection {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        match self {
            Self::Plain(stream) => Caller { address: stream.peer_addr().ok(), key: None },
            Self::Tls(stream) => {
                let (stream, session) = stream.get_ref();
                Caller { address: stream.peer_addr().ok(), key: pin::of_peer(session.peer_certificates()) }
            }
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, into),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
