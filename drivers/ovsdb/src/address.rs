//! Where an OVSDB server listens, in the notation of `ovsdb-server(1)`.
//!
//! `ssl:` joins here: another variant, another arm in [`Address::connect`], same [`Stream`].

use crate::Error;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// Any byte stream that the protocol can run on.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Unix(PathBuf),
    /// `host:port`; RFC 7047 section 4.1 has 6640 as the port.
    Tcp(String),
}

impl Address {
    pub async fn connect(&self, limit: Duration) -> Result<Box<dyn Stream>, Error> {
        let failed = |cause: String| Error::Connect { address: self.to_string(), cause };
        let connecting = async {
            Ok::<Box<dyn Stream>, std::io::Error>(match self {
                Self::Unix(path) => Box::new(UnixStream::connect(path).await?),
                Self::Tcp(address) => {
                    let stream = TcpStream::connect(address.as_str()).await?;
                    stream.set_nodelay(true)?;
                    Box::new(stream)
                }
            })
        };
        match tokio::time::timeout(limit, connecting).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed(format!("no connection within {} ms", limit.as_millis()))),
        }
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let invalid = || Error::Address(text.to_owned());
        match text.split_once(':').ok_or_else(invalid)? {
            ("unix", path) if !path.is_empty() => Ok(Self::Unix(PathBuf::from(path))),
            ("tcp", address) => match address.rsplit_once(':') {
                Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                    Ok(Self::Tcp(address.to_owned()))
                }
                _ => Err(invalid()),
            },
            _ => Err(invalid()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_as_they_are_written() {
        for text in ["unix:/run/openvswitch/db.sock", "tcp:127.0.0.1:6641", "tcp:[fd00::1]:6641"] {
            assert_eq!(text.parse::<Address>().expect(text).to_string(), text);
        }
        for text in ["", "unix:", "tcp:6641", "tcp:host:port", "ssl:127.0.0.1:6641", "/run/db.sock"] {
            text.parse::<Address>().expect_err(text);
        }
    }
}
