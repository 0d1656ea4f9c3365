//! HTTP proxies on the way to a server: by the words of curl's environment variables. What is http is asked of the proxy itself (RFC 9112,
//! 3.2.2); what is https goes through a tunnel that it makes (`CONNECT`), so its certificate is the server's own.

use crate::client::CONNECT;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use std::fmt;
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Of a proxy whose URL has none.
const PORT: u16 = 80;

/// By which of them a server is reached; the default: by none.
#[derive(Clone, Default)]
pub struct Proxies(Option<Arc<Matcher>>);

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "proxies" } else { "no proxies" })
    }
}

impl Proxies {
    /// For http, for https: `http://proxy.example:3128`, with a user and a password if it wants them; or nothing. `no`: for whom there is
    /// none, with commas: names (`example.org` is its hosts too), addresses, networks (`10.0.0.0/8`), or `*`. The error says which of the
    /// first two is meant, by its place, and not what is in it.
    pub fn new(http: &str, https: &str, no: &str) -> Result<Self, (usize, &'static str)> {
        for (place, text) in [http, https].into_iter().enumerate().filter(|(_, text)| !text.is_empty()) {
            let uri = text.parse::<Uri>().ok().filter(|uri| uri.host().is_some_and(|host| !host.is_empty()));
            let is_http = uri.is_some_and(|uri| uri.scheme_str().is_none_or(|scheme| scheme == "http"));
            if !is_http {
                return Err((place, "is no proxy that can be asked: write http://<host>:<port>"));
            }
        }
        let is_none = http.is_empty() && https.is_empty();
        let matcher = || Arc::new(Matcher::builder().http(http).https(https).no(no).build());
        Ok(Self((!is_none).then(matcher)))
    }

    pub(crate) fn of(&self, server: &Uri) -> Option<Proxy> {
        Some(Proxy(self.0.as_ref()?.intercept(server)?))
    }
}

/// One of them.
pub(crate) struct Proxy(Intercept);

impl Proxy {
    /// Without who asks.
    pub(crate) fn name(&self) -> String {
        format!("proxy {}:{}", self.host(), self.port())
    }

    fn host(&self) -> &str {
        self.0.uri().host().unwrap_or_default()
    }

    fn port(&self) -> u16 {
        self.0.uri().port_u16().unwrap_or(PORT)
    }

    /// To an https server.
    pub(crate) fn tunnel(&self, connector: HttpConnector) -> Tunnel<HttpConnector> {
        let tunnel = Tunnel::new(self.0.uri().clone(), connector);
        match self.0.basic_auth() {
            Some(auth) => tunnel.with_auth(auth.clone()),
            None => tunnel,
        }
    }

    /// Of an http server: the URL goes to the proxy as it is.
    pub(crate) async fn request(&self, mut request: Request<Empty<Bytes>>) -> io::Result<Response<Incoming>> {
        // A name of IPv6 stands in brackets in a URL alone.
        let host = self.host().trim_matches(['[', ']']);
        let connected = timeout(CONNECT, TcpStream::connect((host, self.port()))).await;
        let stream = connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        // Until the answer is read, or nobody reads it any more.
        tokio::spawn(connection);
        let server = request.uri().authority().map(|server| server.host().to_owned() + &port(server.port_u16()));
        let server = server.and_then(|server| HeaderValue::try_from(server).ok());
        let headers = request.headers_mut();
        headers.extend(server.map(|server| (header::HOST, server)));
        headers.extend(self.0.basic_auth().map(|auth| (header::PROXY_AUTHORIZATION, auth.clone())));
        sender.send_request(request).await.map_err(io::Error::other)
    }
}

fn port(port: Option<u16>) -> String {
    port.map(|port| format!(":{port}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(proxies: &Proxies, server: &str) -> Option<String> {
        proxies.of(&server.parse().expect("a URL")).map(|proxy| proxy.name())
    }

    #[test]
    fn a_server_is_reached_by_the_proxy_of_its_scheme_unless_it_is_named() {
        let no = "local.example, .dotted.example,10.0.0.0/8,192.0.2.7";
        let proxies = Proxies::new("http://ann:secret@one.example:3128", "two.example:8080", no).expect("proxies");
        for (server, proxy) in [
            ("http://images.example/a.raw", Some("proxy one.example:3128")),
            ("https://images.example/a.raw", Some("proxy two.example:8080")),
            ("http://local.example/", None),
            ("https://a.local.example/", None),
            ("http://x.dotted.example/", None),
            ("http://10.9.8.7:8080/", None),
            ("http://192.0.2.7/", None),
            ("http://192.0.2.8/", Some("proxy one.example:3128")),
        ] {
            assert_eq!(by(&proxies, server).as_deref(), proxy, "{server}");
        }
        assert_eq!(by(&Proxies::new("http://one.example", "", "").expect("one"), "https://x.example/"), None);
        assert_eq!(by(&Proxies::new("http://one.example", "", "*").expect("one"), "http://x.example/"), None);
        assert_eq!(by(&Proxies::new("", "", "x").expect("none"), "http://x.example/"), None);
        assert!(!format!("{proxies:?}").contains("secret"));
    }

    #[test]
    fn what_is_no_proxy_is_refused_by_its_place() {
        for bad in ["https://p.example:3128", "socks5://p.example", "http://", "a b", "/p"] {
            assert_eq!(Proxies::new(bad, "", "").err().map(|(place, _)| place), Some(0), "{bad}");
            assert_eq!(Proxies::new("", bad, "").err().map(|(place, _)| place), Some(1), "{bad}");
        }
    }
}
