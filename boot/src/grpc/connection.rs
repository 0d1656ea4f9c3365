//! One port for agents that speak TLS and for those that do not. The first byte tells: a TLS record of a handshake begins with 22 (RFC
//! 8446, 5.1), HTTP/2 in the clear with the `P` of its preface (RFC 9113, 3.4).

use futures::{Stream, StreamExt};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader, ReadBuf};
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

/// A stream that came, and from where.
pub type Arrived<S> = (S, Option<SocketAddr>);

pub struct Connection<S> {
    spoken: Spoken<S>,
    from: Option<SocketAddr>,
}

/// Buffered: the first byte is looked at before it is read.
enum Spoken<S> {
    Plain(BufReader<S>),
    Tls(Box<TlsStream<BufReader<S>>>),
}

/// What a stream of an agent is.
pub trait Wire: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Wire for S {}

pub fn arriving(listener: TcpListener) -> impl Stream<Item = io::Result<Arrived<TcpStream>>> {
    tokio_stream::wrappers::TcpListenerStream::new(listener).map(|stream| {
        let stream = stream?;
        stream.set_nodelay(true)?;
        let from = stream.peer_addr().ok();
        Ok((stream, from))
    })
}

/// Those that said what they speak. `tls`: `None` where it is not spoken.
pub fn accept<S: Wire>(
    arriving: impl Stream<Item = io::Result<Arrived<S>>>,
    tls: Option<rustls::ServerConfig>,
) -> impl Stream<Item = io::Result<Connection<S>>> {
    let tls = tls.map(|tls| TlsAcceptor::from(Arc::new(tls)));
    let begun = arriving.map(move |arrived| {
        let tls = tls.clone();
        async move {
            let (stream, from) = match arrived {
                Ok(arrived) => arrived,
                // Too many open files, say: the next one would fail at once too.
                Err(error) => {
                    tokio::time::sleep(AGAIN).await;
                    return refused(None, &error);
                }
            };
            match timeout(LIMIT, begin(BufReader::new(stream), tls)).await {
                Ok(Ok(spoken)) => Some(Connection { spoken, from }),
                Ok(Err(error)) => refused(from, &error),
                Err(_) => refused(from, &io::ErrorKind::TimedOut.into()),
            }
        }
    });
    begun.buffer_unordered(AT_ONCE).filter_map(|connection| std::future::ready(connection.map(Ok)))
}

fn refused<S>(from: Option<SocketAddr>, error: &io::Error) -> Option<Connection<S>> {
    tracing::debug!(?from, %error, "a connection of an agent did not begin");
    None
}

async fn begin<S: Wire>(mut stream: BufReader<S>, tls: Option<TlsAcceptor>) -> io::Result<Spoken<S>> {
    let is_tls = stream.fill_buf().await?.first() == Some(&HANDSHAKE);
    match tls {
        Some(tls) if is_tls => Ok(Spoken::Tls(Box::new(tls.accept(stream).await?))),
        _ => Ok(Spoken::Plain(stream)),
    }
}

impl<S: Wire> Connected for Connection<S> {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        let key = match &self.spoken {
            Spoken::Plain(_) => None,
            Spoken::Tls(stream) => pin::of_peer(stream.get_ref().1.peer_certificates()),
        };
        Caller { address: self.from, key }
    }
}

impl<S: Wire> AsyncRead for Connection<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().spoken {
            Spoken::Plain(stream) => Pin::new(stream).poll_read(context, into),
            Spoken::Tls(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl<S: Wire> AsyncWrite for Connection<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().spoken {
            Spoken::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Spoken::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().spoken {
            Spoken::Plain(stream) => Pin::new(stream).poll_flush(context),
            Spoken::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().spoken {
            Spoken::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Spoken::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
