//! ISO images of other servers, filled on the way: `isoboot.sourceISO` of the Hardware, else `--iso-url`. A BMC reads a CD in thousands of
//! small parts; so an image is fetched by blocks (HTTP Range), of which the last ones are kept. A place for the kernel's arguments is looked
//! for in what is read and what is around that: one that two parts share is filled in both, and nothing has to be read before.

use bytes::Bytes;
use imaging::fetch::{Parts, plain};
use imaging::{Authorities, Packing, Proxies, Source};
use proto::argument_area as area;
use proto::argument_area::LENGTH;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use trust::Bundle;
use url::Url;

/// Asked of a server at once.
const BLOCK: u64 = 1 << 20;
/// Kept, of all images.
const BLOCKS: usize = 32;
/// Fetched at the same time, for all servers.
const FETCHES: usize = 8;
/// For one block, with waiting for its turn: BMCs give up sooner or later than that.
const LIMIT: Duration = Duration::from_secs(60);
/// Until the other server is asked again whether the image is the same.
const FRESH: Duration = Duration::from_secs(60);
/// Around a part: what of a place may be outside of it.
const AROUND: u64 = LENGTH as u64 - 1;

/// Begins the header `User-Agent` of what fetches for others.
pub(crate) const USER_AGENT: &str = "metalplane-boot/";

/// What the configuration says.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Of Hardware that names no image of its own.
    pub url: Option<String>,
    /// Who vouches for https servers, in PEM, instead of the public authorities. Read each time, for it may be mounted from an object.
    pub ca_file: Option<PathBuf>,
}

pub struct Origins {
    config: Config,
    opened: Mutex<Vec<Opened>>,
    blocks: Mutex<VecDeque<(Key, Bytes)>>,
    turns: Semaphore,
}

struct Opened {
    url: String,
    at: Instant,
    image: Arc<Image>,
}

/// One version of an image.
pub struct Image {
    parts: Parts,
    /// What its blocks are kept by.
    version: String,
}

/// URL, version, and number of a block.
type Key = (String, String, u64);

impl Image {
    pub fn length(&self) -> u64 {
        self.parts.length()
    }

    /// For an ETag, with what a place is filled with.
    pub fn etag(&self, filling: &[u8]) -> String {
        let version = crate::files::short_digest(self.version.as_bytes());
        format!("\"{:x}-{version}-{}\"", self.length(), crate::files::short_digest(filling))
    }
}

/// Whether an image can be fetched from there. The error says what to write.
pub fn check(url: &str) -> Result<(), String> {
    let wrong = || "write an http or https URL".to_owned();
    let url = Url::parse(url).map_err(|_| wrong())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(wrong());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a name or a password before the host is not sent: write an URL without".to_owned());
    }
    Ok(())
}

impl Origins {
    pub fn new(config: Config) -> Self {
        let (opened, blocks) = (Mutex::default(), Mutex::default());
        Self { config, opened, blocks, turns: Semaphore::new(FETCHES) }
    }

    /// Of Hardware that names none.
    pub fn default_url(&self) -> Option<&str> {
        self.config.url.as_deref()
    }

    /// The error is for the log; it has no secret of the URL.
    pub async fn open(&self, url: &str) -> Result<Arc<Image>, String> {
        let known = lock(&self.opened)
            .iter()
            .find(|one| one.url == url && one.at.elapsed() < FRESH)
            .map(|one| one.image.clone());
        if let Some(image) = known {
            return Ok(image);
        }
        let source = Source {
            url: url.to_owned(),
            checksum: None,
            checksum_field: "",
            packing: Packing::AsIs,
            user_agent: format!("{USER_AGENT}{}", runtime::version::VERSION),
            authorities: self.authorities().await?,
            authorities_field: "boot.iso.caBundle",
            access: None,
            proxies: Proxies::default(),
        };
        let parts = self.turn(url, Parts::open(source)).await?;
        let now = Instant::now();
        // One whose server does not say its version may be another one by now.
        let version = parts.version().unwrap_or_else(|| format!("{now:?}"));
        let image = Arc::new(Image { parts, version });
        let mut opened = lock(&self.opened);
        opened.retain(|one| one.url != url && one.at.elapsed() < FRESH);
        opened.push(Opened { url: url.to_owned(), at: now, image: image.clone() });
        Ok(image)
    }

    async fn authorities(&self) -> Result<Authorities, String> {
        let Some(file) = &self.config.ca_file else { return Ok(Authorities::Public) };
        let refused = |why: String| format!("--iso-ca-file (boot.iso.caBundle of the chart): {} {why}", file.display());
        let pem = tokio::fs::read(file).await.map_err(|error| refused(format!("cannot be read: {error}")))?;
        Ok(Authorities::These(Bundle::parse(&pem).map_err(refused)?))
    }

    /// A part of an image, with its places filled.
    pub async fn read(
        &self,
        url: &str,
        image: &Image,
        filling: &[u8],
        first: u64,
        length: u64,
    ) -> Result<Bytes, String> {
        let (from, to) = (first.saturating_sub(AROUND), (first + length + AROUND).min(image.length()));
        let mut around = Vec::new();
        for number in from / BLOCK..to.div_ceil(BLOCK) {
            let begin = number * BLOCK;
            let block = self.block(url, image, number).await?;
            let place = |at: u64| usize::try_from(at.saturating_sub(begin)).unwrap_or(usize::MAX).min(block.len());
            around.extend_from_slice(&block[place(from)..place(to)]);
        }
        let places: Vec<u64> = area::places(&around).map(|at| from + at as u64).collect();
        area::fill(&places, filling, from, &mut around);
        let begin = usize::try_from(first - from).unwrap_or(usize::MAX);
        let end = begin.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
        Ok(Bytes::from(around).slice(begin..end))
    }

    async fn block(&self, url: &str, image: &Image, number: u64) -> Result<Bytes, String> {
        let key = (url.to_owned(), image.version.clone(), number);
        let known = lock(&self.blocks).iter().find(|(known, _)| *known == key).map(|(_, block)| block.clone());
        if let Some(block) = known {
            return Ok(block);
        }
        let begin = number * BLOCK;
        let length = usize::try_from((image.length() - begin).min(BLOCK)).unwrap_or_default();
        let fetched = self.turn(url, image.parts.read(begin, length)).await;
        if fetched.is_err() {
            // Another version may be there by now.
            lock(&self.opened).retain(|one| one.url != url);
        }
        let block = Bytes::from(fetched?);
        let mut blocks = lock(&self.blocks);
        blocks.push_back((key, block.clone()));
        while blocks.len() > BLOCKS {
            blocks.pop_front();
        }
        Ok(block)
    }

    async fn turn<T>(&self, url: &str, work: impl Future<Output = Result<T, imaging::Error>>) -> Result<T, String> {
        let all = async {
            let _turn = self.turns.acquire().await.map_err(|error| error.to_string())?;
            work.await.map_err(|error| error.message)
        };
        timeout(LIMIT, all)
            .await
            .unwrap_or_else(|_| Err(format!("{}: no answer within {} s", plain(url), LIMIT.as_secs())))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
