//! Over sockets: an image of another server, by this service's own HTTP.

use super::super::range::{heads, part};
use super::*;
use crate::origin::Config;
use axum::extract::{Request, State};
use http::Method;
use proto::argument_area::{LENGTH, empty};
use std::sync::{Mutex, PoisonError};

const MIB: usize = 1 << 20;
const ARGUMENTS: &str = "worker_id=a hw_addr=b";

/// A server of one file.
#[derive(Default)]
struct Other {
    bytes: Vec<u8>,
    etag: String,
    serves_parts: bool,
    /// Ranges that it was asked for.
    asked: Vec<String>,
    /// It breaks its answers off.
    breaks: bool,
}

type Shared = Arc<Mutex<Other>>;

async fn serve(State(other): State<Shared>, request: Request) -> Response {
    let mut other = other.lock().unwrap_or_else(PoisonError::into_inner);
    if request.uri().path() != "/dir/a.iso" {
        return text_answer(StatusCode::NOT_FOUND, String::new(), false);
    }
    assert_eq!(request.uri().query(), Some("token=secret"));
    let length = other.bytes.len() as u64;
    let mut headers = request.headers().clone();
    other.asked.extend(headers.get(header::RANGE).map(|range| range.to_str().expect("text").to_owned()));
    if !other.serves_parts {
        headers.remove(header::RANGE);
    }
    let (status, first, wanted, headers) = heads(part(&headers, &other.etag, length), &other.etag, length);
    let at = |number: u64| usize::try_from(number).expect("small");
    let whole = Bytes::copy_from_slice(&other.bytes[at(first)..at(first + wanted)]);
    let half = whole.slice(..whole.len() / 2);
    let chunks = if other.breaks { vec![Ok(half), Err(std::io::Error::other("broken"))] } else { vec![Ok(whole)] };
    respond(status, headers, Body::from_stream(futures::stream::iter(chunks)))
}

/// With a place at its beginning, one that blocks share, and one at its end.
fn image() -> Vec<u8> {
    let mut image: Vec<u8> = (0..3 * MIB + 12_345).map(|at| (at % 251) as u8).collect();
    for at in places(&image) {
        image[at..at + LENGTH].copy_from_slice(empty().as_bytes());
    }
    image
}

fn places(image: &[u8]) -> [usize; 3] {
    [0, 2 * MIB - 300, image.len() - LENGTH]
}

fn filled(mut image: Vec<u8>) -> Vec<u8> {
    for at in places(&image) {
        image[at..at + LENGTH].copy_from_slice(format!("{ARGUMENTS:<LENGTH$}").as_bytes());
    }
    image
}

struct Site {
    other: Shared,
    origins: Arc<Origins>,
    url: String,
}

impl Site {
    async fn new() -> Self {
        let other = Other { bytes: image(), etag: "\"1\"".to_owned(), serves_parts: true, ..Other::default() };
        let other = Arc::new(Mutex::new(other));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("listen");
        let address = listener.local_addr().expect("an address");
        let app = axum::Router::new().fallback(serve).with_state(other.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        let origins = Arc::new(Origins::new(Config::default()));
        Self { other, origins, url: format!("http://{address}/dir/a.iso?token=secret") }
    }

    async fn get(
        &self,
        method: Method,
        headers: &[(header::HeaderName, &str)],
    ) -> (StatusCode, HeaderMap, Option<Bytes>) {
        let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().expect("a value"))).collect();
        let answered = answer(&self.origins, (self.url.clone(), ARGUMENTS), &headers, method == Method::HEAD).await;
        let (parts, body) = answered.into_parts();
        (parts.status, parts.headers, axum::body::to_bytes(body, usize::MAX).await.ok())
    }

    fn change(&self, change: impl FnOnce(&mut Other)) {
        change(&mut self.other.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[tokio::test]
async fn what_is_read_in_parts_is_the_filled_whole() {
    let site = Site::new().await;
    let whole = filled(image());
    let (status, headers, body) = site.get(Method::GET, &[]).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(headers[header::CONTENT_LENGTH], whole.len().to_string());
    assert!(body.expect("whole") == whole);
    let asked = site.other.lock().expect("no panic").asked.len();
    // Its length, and each block once.
    assert_eq!(asked, 1 + 4);
    let last_byte = whole.len() as i64 - 1;
    for place in places(&whole).map(|at| at as i64) {
        for (before, length) in [-1500, -1024, -1023, -1, 0, 1, 299, 300, 301, 1023, 1024]
            .into_iter()
            .flat_map(|before| [1, 2, 724, 1024, 2048].map(|length| (before, length)))
        {
            let first = (place + before).clamp(0, last_byte);
            let last = (first + length - 1).min(last_byte);
            let range = format!("bytes={first}-{last}");
            let (status, headers, body) = site.get(Method::GET, &[(header::RANGE, &range)]).await;
            assert_eq!(status, StatusCode::PARTIAL_CONTENT);
            assert_eq!(headers[header::CONTENT_RANGE], format!("bytes {first}-{last}/{}", whole.len()));
            let at = |number: i64| usize::try_from(number).expect("small");
            assert!(body.expect("a part") == whole[at(first)..=at(last)], "{range}");
        }
    }
    assert_eq!(site.other.lock().expect("no panic").asked.len(), asked, "what is kept is not asked for again");
}

#[tokio::test]
async fn ranges_are_those_of_a_file_here() {
    let site = Site::new().await;
    let whole = filled(image());
    let (status, headers, body) = site.get(Method::HEAD, &[]).await;
    assert_eq!((status, body.expect("none").len()), (StatusCode::OK, 0));
    assert_eq!(headers[header::CONTENT_LENGTH], whole.len().to_string());
    let etag = headers[header::ETAG].to_str().expect("text").to_owned();
    let (status, _, body) = site.get(Method::GET, &[(header::RANGE, "bytes=-2048")]).await;
    assert_eq!(status, StatusCode::PARTIAL_CONTENT);
    assert!(body.expect("a part") == whole[whole.len() - 2048..]);
    let behind = format!("bytes={}-", whole.len());
    let (status, headers, _) = site.get(Method::GET, &[(header::RANGE, &behind)]).await;
    assert_eq!(status, StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(headers[header::CONTENT_RANGE], format!("bytes */{}", whole.len()));
    let same = site.get(Method::GET, &[(header::RANGE, "bytes=0-9"), (header::IF_RANGE, &etag)]).await;
    assert_eq!(same.0, StatusCode::PARTIAL_CONTENT);
    let other = site.get(Method::HEAD, &[(header::RANGE, "bytes=0-9"), (header::IF_RANGE, "\"other\"")]).await;
    assert_eq!(other.0, StatusCode::OK);
}

#[tokio::test]
async fn what_cannot_be_fetched_is_502_and_tells_no_secret() {
    let mut site = Site::new().await;
    let refused = async |site: &Site, said: &str| {
        let why = site.origins.open(&site.url).await.err().unwrap_or_default();
        assert!(why.contains(said) && !why.contains("secret"), "{why}");
        let (status, _, body) = site.get(Method::GET, &[(header::RANGE, "bytes=0-9")]).await;
        assert_eq!(status, StatusCode::BAD_GATEWAY);
        assert!(!String::from_utf8_lossy(&body.expect("a text")).contains("secret"));
    };
    site.change(|other| other.serves_parts = false);
    refused(&site, "HTTP Range").await;
    site.change(|other| other.serves_parts = true);
    let right = site.url.clone();
    site.url = right.replace("a.iso", "b.iso");
    refused(&site, "404").await;
    site.url = "http://127.0.0.1:1/a.iso?token=secret".to_owned();
    refused(&site, "127.0.0.1:1/a.iso").await;
    site.url = right;
    // It is broken off before the answer begins.
    site.change(|other| other.breaks = true);
    assert_eq!(site.get(Method::GET, &[]).await.0, StatusCode::BAD_GATEWAY);
    site.change(|other| other.breaks = false);
    assert_eq!(site.get(Method::GET, &[(header::RANGE, "bytes=0-9")]).await.0, StatusCode::PARTIAL_CONTENT);
    // And behind that, when the first block is here: the body ends early.
    site.change(|other| other.breaks = true);
    let (status, _, body) = site.get(Method::GET, &[]).await;
    assert_eq!((status, body), (StatusCode::OK, None));
}

#[tokio::test]
async fn another_image_in_its_place_is_not_mixed_with_it() {
    let site = Site::new().await;
    let first = (header::RANGE, "bytes=1000-1999");
    assert_eq!(site.get(Method::GET, std::slice::from_ref(&first)).await.0, StatusCode::PARTIAL_CONTENT);
    site.change(|other| {
        other.bytes[1500] = b'n';
        other.etag = "\"2\"".to_owned();
    });
    // What is not kept is of the other image by now.
    let second = (header::RANGE, "bytes=2100000-2100999");
    assert_eq!(site.get(Method::GET, std::slice::from_ref(&second)).await.0, StatusCode::BAD_GATEWAY);
    let (status, _, body) = site.get(Method::GET, &[first]).await;
    assert_eq!((status, body.expect("a part")[500]), (StatusCode::PARTIAL_CONTENT, b'n'));
}

#[tokio::test]
async fn a_source_that_is_a_boot_service_is_told() {
    let site = Site::new().await;
    let agent = format!("{USER_AGENT}1.0");
    let (status, ..) = site.get(Method::GET, &[(header::USER_AGENT, &agent)]).await;
    assert_eq!(status, StatusCode::LOOP_DETECTED);
}
