//! Joins sockets: every connection that comes in at one is made on to the other. A program that serves a local socket,
//! as a CSI driver does, is called across a network by one relay on either side of it.

use std::fmt::{self, Display};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::args::Relay;

/// One end of a relay: `tcp:ADDRESS:PORT` or `unix:/PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("tcp", address)) => address.parse().map(Place::Tcp).map_err(|error| format!("{address}: {error}")),
            Some(("unix", path)) if path.starts_with('/') => Ok(Place::Unix(path.into())),
            _ => Err("write tcp:ADDRESS:PORT or unix:/PATH".to_owned()),
        }
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Tcp(address) => write!(f, "tcp:{address}"),
            Place::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    async fn bind(place: &Place) -> Result<Listener> {
        match place {
            Place::Tcp(address) => TcpListener::bind(address).await.map(Listener::Tcp),
            Place::Unix(path) => match std::fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => UnixListener::bind(path).map(Listener::Unix),
            },
        }
        .with_context(|| format!("listen at {place}"))
    }

    async fn accept(&self) -> std::io::Result<Box<dyn Stream>> {
        Ok(match self {
            Listener::Tcp(listener) => Box::new(prompt(listener.accept().await?.0)?),
            Listener::Unix(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

async fn connect(place: &Place) -> std::io::Result<Box<dyn Stream>> {
    Ok(match place {
        Place::Tcp(address) => Box::new(prompt(TcpStream::connect(address).await?)?),
        Place::Unix(path) => Box::new(UnixStream::connect(path).await?),
    })
}

/// What is passed on are small requests and answers.
fn prompt(stream: TcpStream) -> std::io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    Ok(stream)
}

pub async fn run(args: &Relay) -> Result<()> {
    let listener = Listener::bind(&args.listen).await?;
    pass_on(&listener, &args.to).await.with_context(|| format!("accept at {}", args.listen))
}

async fn pass_on(listener: &Listener, to: &Place) -> std::io::Result<()> {
    loop {
        let mut here = listener.accept().await?;
        let to = to.clone();
        tokio::spawn(async move {
            match connect(&to).await {
                // Either side may end the connection; that is no error of ours.
                Ok(mut there) => drop(copy_bidirectional(&mut here, &mut there).await),
                Err(error) => tracing::warn!("no connection to {to}: {error}"),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn a_place_is_read_as_it_is_written() {
        for text in ["tcp:10.30.0.7:7000", "unix:/run/csi.sock"] {
            assert_eq!(text.parse::<Place>().expect("a place").to_string(), text);
        }
        for text in ["10.30.0.7:7000", "unix:csi.sock", "tcp:somewhere", ""] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn two_relays_make_one_way_from_socket_to_socket() {
        let folder = tempfile::tempdir().expect("folder");
        let [near, far] = ["near", "far"].map(|name| Place::Unix(folder.path().join(name)));
        let served = Listener::bind(&far).await.expect("listens");
        let network = TcpListener::bind("127.0.0.1:0").await.expect("listens");
        let between = Place::Tcp(network.local_addr().expect("an address"));
        let beginning = Listener::bind(&near).await.expect("listens");
        tokio::spawn(async move { pass_on(&Listener::Tcp(network), &far).await });
        tokio::spawn(async move { pass_on(&beginning, &between).await });
        let mut asked = connect(&near).await.expect("a relay listens");
        let mut served = served.accept().await.expect("asked");
        let mut heard = [0; 4];
        asked.write_all(b"ping").await.expect("sent");
        served.read_exact(&mut heard).await.expect("heard");
        assert_eq!(&heard, b"ping");
        served.write_all(b"pong").await.expect("sent");
        asked.read_exact(&mut heard).await.expect("heard");
        assert_eq!(&heard, b"pong");
    }
}
