//! Where OVSDB servers listen, in the notation of `ovsdb(7)`: `unix:PATH`, `tcp:HOST:PORT`, `ssl:HOST:PORT`, and several of them,
//! the members of a cluster, separated by commas.

use crate::Error;
use crate::tls::TlsFiles;
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
    /// TLS, by the name that OVN has for it.
    Ssl(String),
}

impl Address {
    /// `tls`: of an address that needs it.
    async fn connect(&self, tls: Option<&TlsFiles>) -> Result<Box<dyn Stream>, String> {
        let tcp = async |address: &str| {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok::<_, std::io::Error>(stream)
        };
        match self {
            Self::Unix(path) => match UnixStream::connect(path).await {
                Ok(stream) => Ok(Box::new(stream)),
                Err(error) => Err(error.to_string()),
            },
            Self::Tcp(address) => match tcp(address).await {
                Ok(stream) => Ok(Box::new(stream)),
                Err(error) => Err(error.to_string()),
            },
            Self::Ssl(address) => {
                // Before the server is asked: files that cannot be read are told whether it is there or not.
                let files = tls.ok_or_else(|| Error::NoTlsFiles(self.to_string()).to_string())?;
                let client = files.read(host(address)).await?;
                let stream = tcp(address).await.map_err(|error| error.to_string())?;
                Ok(Box::new(client.connect(stream).await?))
            }
        }
    }
}

/// Without the port, and an IPv6 address without its brackets.
fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let invalid = || Error::Address(text.to_owned());
        let (kind, rest) = text.split_once(':').ok_or_else(invalid)?;
        let reached = |address: &str| match address.rsplit_once(':') {
            // An IPv6 address is in brackets: else its last group would be the port.
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                host.starts_with('[') == host.ends_with(']') && (host.starts_with('[') || !host.contains(':'))
            }
            _ => false,
        };
        match kind {
            "unix" if !rest.is_empty() => Ok(Self::Unix(PathBuf::from(rest))),
            "tcp" if reached(rest) => Ok(Self::Tcp(rest.to_owned())),
            "ssl" if reached(rest) => Ok(Self::Ssl(rest.to_owned())),
            _ => Err(invalid()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Ssl(address) => write!(f, "ssl:{address}"),
        }
    }
}

/// The servers of one database. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses(Vec<Address>);

impl Addresses {
    pub fn need_tls(&self) -> bool {
        self.0.iter().any(|address| matches!(address, Address::Ssl(_)))
    }
}

impl FromStr for Addresses {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        text.split(',').map(|one| one.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(Address::to_string).collect();
        f.write_str(&all.join(","))
    }
}

/// The servers of one database, and how they are reached.
#[derive(Debug, Clone)]
pub struct Remotes {
    addresses: Addresses,
    tls: Option<TlsFiles>,
}

impl Remotes {
    /// Refuses `ssl:` without the files that it needs.
    pub fn new(addresses: Addresses, tls: Option<TlsFiles>) -> Result<Self, Error> {
        if tls.is_none() && addresses.need_tls() {
            return Err(Error::NoTlsFiles(addresses.to_string()));
        }
        Ok(Self { addresses, tls })
    }

    pub(crate) fn count(&self) -> usize {
        self.addresses.0.len()
    }

    /// They are taken in turn.
    pub(crate) fn turn(&self, number: usize) -> &Address {
        &self.addresses.0[number % self.count()]
    }

    /// Of an address by TLS.
    pub(crate) fn tls_of(&self, address: &Address) -> Option<&TlsFiles> {
        self.tls.as_ref().filter(|_| matches!(address, Address::Ssl(_)))
    }

    pub(crate) async fn connect(&self, address: &Address, limit: Duration) -> Result<Box<dyn Stream>, Error> {
        let failed = |cause: String| Error::Connect { address: address.to_string(), cause };
        match tokio::time::timeout(limit, address.connect(self.tls.as_ref())).await {
            Ok(connected) => connected.map_err(failed),
            Err(_) => Err(failed(format!("no connection within {} ms", limit.as_millis()))),
        }
    }
}

impl fmt::Display for Remotes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.addresses.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_as_they_are_written() {
        for text in [
            "unix:/run/openvswitch/db.sock",
            "tcp:127.0.0.1:6641",
            "tcp:[fd00::1]:6641",
            "ssl:ovn-nb.ovn.svc:6641",
            "ssl:[fd00::1]:6641",
        ] {
            assert_eq!(text.parse::<Address>().expect(text).to_string(), text);
        }
        for text in [
            "",
            "unix:",
            "tcp:6641",
            "tcp:host:port",
            "ssl:6641",
            "ssl:fd00::1:6641",
            "ssl:[fd00::1:6641",
            "/run/db.sock",
        ] {
            text.parse::<Address>().expect_err(text);
        }
    }

    #[test]
    fn several_servers_are_taken_in_turn() {
        let three: Addresses = "ssl:10.0.0.1:6641, ssl:10.0.0.2:6641,tcp:10.0.0.3:6641".parse().expect("addresses");
        assert_eq!(three.to_string(), "ssl:10.0.0.1:6641,ssl:10.0.0.2:6641,tcp:10.0.0.3:6641");
        assert!(three.need_tls());
        assert!(matches!(Remotes::new(three, None), Err(Error::NoTlsFiles(_))));
        let two = Remotes::new("tcp:a:1,tcp:b:2".parse().expect("addresses"), None).expect("no TLS is needed");
        let turns: Vec<String> = (0..3).map(|number| two.turn(number).to_string()).collect();
        assert_eq!(turns, ["tcp:a:1", "tcp:b:2", "tcp:a:1"]);
        for text in ["", "tcp:a:1,", ",tcp:a:1", "tcp:a:1;tcp:b:2"] {
            text.parse::<Addresses>().expect_err(text);
        }
    }

    #[test]
    fn the_host_is_what_a_certificate_names() {
        assert_eq!(
            (host("ovn-nb:6641"), host("10.0.0.1:6641"), host("[fd00::1]:6641")),
            ("ovn-nb", "10.0.0.1", "fd00::1")
        );
    }
}
