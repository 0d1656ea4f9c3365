//! One request to a server, and the bytes of its answer.

use crate::fetch::{invalid, unreachable};
use crate::{Authorities, Error, Source};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::ClientConfig;
use std::time::Duration;
use tokio::time::timeout;
use url::Url;

const CONNECT: Duration = Duration::from_secs(10);
/// The server says nothing for so long.
const STALL: Duration = Duration::from_secs(60);

/// With what the server's registry wants to know of who asks, if the source is one's.
pub(crate) async fn get(source: &Source, url: &Url, headers: &HeaderMap) -> Result<Response<Incoming>, Error> {
    let Some(access) = source.access.as_ref().filter(|access| access.covers(url)) else {
        return request(source, url, headers).await;
    };
    let response = request(source, url, &access.signed(headers)).await?;
    if response.status() != StatusCode::UNAUTHORIZED {
        return Ok(response);
    }
    access.answer(source, response.headers()).await?;
    request(source, url, &access.signed(headers)).await
}

pub(crate) async fn request(source: &Source, url: &Url, headers: &HeaderMap) -> Result<Response<Incoming>, Error> {
    let uri: Uri = url.as_str().parse().map_err(|error| invalid(url, &format!("{error}")))?;
    let mut request = Request::get(uri).header(header::USER_AGENT, &source.user_agent);
    if let Some(all) = request.headers_mut() {
        all.extend(headers.clone());
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| invalid(url, &error.to_string()))?;
    let answered = match url.scheme() {
        "http" => timeout(STALL, http_client().request(request)).await,
        "https" => {
            let client = https_client(&source.authorities).map_err(|cause| invalid(url, &cause))?;
            timeout(STALL, client.request(request)).await
        }
        other => return Err(invalid(url, &format!("{other} is not served: use http or https"))),
    };
    let answered = answered.map_err(|_| unreachable(url.as_str(), "no answer"))?;
    answered.map_err(|error| {
        if let Some(refusal) = trust::refusal(&error) {
            return unreachable(url.as_str(), &refusal.advice(source.authorities_field));
        }
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        unreachable(url.as_str(), &format!("{error}{cause}"))
    })
}

/// The next bytes of a body, of which `read` have come; `None`: its end.
pub(crate) async fn next(
    url: &str,
    body: &mut Incoming,
    read: u64,
    length: Option<u64>,
) -> Result<Option<Bytes>, Error> {
    loop {
        let frame = timeout(STALL, body.frame()).await;
        let frame = frame.map_err(|_| unreachable(url, &format!("nothing came for {} s", STALL.as_secs())))?;
        let Some(frame) = frame else { return Ok(None) };
        let frame = frame.map_err(|error| unreachable(url, &early(read, length, &error)))?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
}

/// All of a body that is no image.
pub(crate) async fn whole(url: &Url, response: Response<Incoming>, limit: usize) -> Result<Vec<u8>, Error> {
    let (mut body, mut bytes) = (response.into_body(), Vec::new());
    while let Some(data) = next(url.as_str(), &mut body, bytes.len() as u64, None).await? {
        bytes.extend_from_slice(&data);
        if bytes.len() > limit {
            return Err(invalid(url, &format!("the answer is larger than {limit} bytes")));
        }
    }
    Ok(bytes)
}

fn early(read: u64, length: Option<u64>, error: &hyper::Error) -> String {
    let length = length.map(|length| format!(" of {length}")).unwrap_or_default();
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("it ended after {read}{length} bytes: {error}{cause}")
}

fn connector() -> HttpConnector {
    let mut http = HttpConnector::new();
    http.set_connect_timeout(Some(CONNECT));
    http
}

fn http_client() -> Client<HttpConnector, Empty<Bytes>> {
    Client::builder(TokioExecutor::new()).build(connector())
}

fn https_client(authorities: &Authorities) -> Result<Client<HttpsConnector<HttpConnector>, Empty<Bytes>>, String> {
    let mut http = connector();
    http.enforce_http(false);
    let config = match authorities {
        Authorities::These(bundle) => bundle.client()?,
        Authorities::Public => {
            let config = ClientConfig::builder().with_native_roots();
            config.map_err(|error| format!("no certificates to trust: {error}"))?.with_no_client_auth()
        }
        Authorities::NotAsked => trust::unverified()?,
    };
    let https = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1().wrap_connector(http);
    Ok(Client::builder(TokioExecutor::new()).build(https))
}
