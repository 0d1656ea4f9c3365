//! Imports: a task per volume that streams an image into it. Started by a step, observed by the next rounds, ended by
//! itself or by a step. An import that was interrupted starts over: it has written nothing that somebody else reads.

use crate::act::{file_error, port_error};
use api::image::ImageFormat;
use imaging::{Algorithm, Checksum, Disk, FileDisk, Packing, Progress, Proxies, Rest, Source, Target};
use planner::agent::{ImportDone, ImportRun};
use planner::exposure::ExposureId;
use ports::volume::VolumeWriter;
use ports::{ErrorClass, PortError, VolumeConnector};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use trust::Bundle;

/// Of an image, for users; what the attachment has is a copy of it.
const CA_BUNDLE: &str = "spec.source.http.caBundle of the image";

#[derive(Clone)]
pub struct Job {
    pub url: String,
    /// Lower-case hex.
    pub sha256: String,
    /// Authorities, in PEM.
    pub ca_bundle: Option<String>,
    pub format: ImageFormat,
    /// What the volume is called, for messages.
    pub volume: String,
    pub place: Place,
    pub size_bytes: u64,
}

/// Where the volume is.
#[derive(Clone)]
pub enum Place {
    Path(PathBuf),
    /// What this connector has connected for this attachment.
    Connected(Arc<dyn VolumeConnector>, ExposureId),
}

impl Place {
    async fn open(&self, job: &Job) -> Result<Box<dyn Disk>, PortError> {
        match self {
            Self::Path(path) => {
                let (path, size_bytes) = (path.clone(), job.size_bytes);
                let opened = tokio::task::spawn_blocking(move || FileDisk::open(&path, size_bytes)).await;
                let opened = opened.unwrap_or_else(|panic| Err(io::Error::other(panic)));
                let writer = opened.map_err(|error| file_error("opening volume", &job.volume, &error))?;
                Ok(Box::new(writer))
            }
            Self::Connected(connector, id) => Ok(Box::new(Connected(connector.open_writer(id).await?))),
        }
    }

    /// What is left when this fails ends with the connection.
    async fn close(&self) {
        let Self::Connected(connector, id) = self else { return };
        if let Err(error) = connector.close_writer(id).await {
            tracing::warn!(uid = id.uid, %error, "closing an import");
        }
    }
}

/// What a connector has opened.
struct Connected(Box<dyn VolumeWriter>);

impl Disk for Connected {
    fn discard(&mut self) -> io::Result<()> {
        self.0.discard()
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn zero(&mut self, offset: u64, length: u64) -> io::Result<()> {
        self.0.zero(offset, length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync()
    }
}

struct Running {
    progress: Arc<AtomicU64>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<ImportDone, PortError>>,
}

pub struct Imports {
    running: Mutex<BTreeMap<String, Running>>,
    wake: Arc<Notify>,
}

impl Imports {
    pub fn new(wake: Arc<Notify>) -> Self {
        Self { running: Mutex::default(), wake }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One at a time for each UID.
    pub fn start(&self, uid: &str, job: Job) {
        let progress = Arc::new(AtomicU64::new(0));
        let (stop, stopped) = oneshot::channel();
        let (counter, wake) = (progress.clone(), self.wake.clone());
        self.lock().entry(uid.to_owned()).or_insert_with(|| {
            tracing::info!(url = imaging::fetch::plain(&job.url), volume = job.volume, "importing");
            let task = tokio::spawn(async move {
                let result = run(job, counter, &wake, stopped).await;
                wake.notify_one();
                result
            });
            Running { progress, stop, task }
        });
    }

    /// Those under way, with what they told last.
    pub fn running(&self) -> BTreeMap<String, ImportRun> {
        let run = |running: &Running| ImportRun { bytes_written: running.progress.load(Ordering::Relaxed) };
        self.lock().iter().map(|(uid, running)| (uid.clone(), run(running))).collect()
    }

    /// Those that ended since the last call.
    pub async fn ended(&self) -> Vec<(String, Result<ImportDone, PortError>)> {
        let ended: Vec<_> = self.lock().extract_if(.., |_, running| running.task.is_finished()).collect();
        let mut results = Vec::new();
        for (uid, running) in ended {
            let result = running.task.await;
            let panicked = |e| Err(PortError::new(ErrorClass::Invalid, format!("the import ended: {e}")));
            results.push((uid, result.unwrap_or_else(panicked)));
        }
        results
    }

    /// When this returns nothing writes the volume any more.
    pub async fn stop(&self, uid: &str) {
        let running = self.lock().remove(uid);
        if let Some(Running { stop, task, .. }) = running {
            drop(stop);
            if let Err(error) = task.await {
                tracing::warn!(uid, %error, "stopping an import");
            }
        }
    }
}

async fn run(
    job: Job,
    progress: Arc<AtomicU64>,
    wake: &Notify,
    stopped: oneshot::Receiver<()>,
) -> Result<ImportDone, PortError> {
    let authorities = job.ca_bundle.as_ref().map(|pem| Bundle::parse(pem.as_bytes())).transpose();
    let authorities =
        authorities.map_err(|error| PortError::new(ErrorClass::Invalid, format!("{CA_BUNDLE} {error}")))?;
    let disk = job.place.open(&job).await?;
    let url = imaging::fetch::plain(&job.url);
    let source = Source {
        url: job.url,
        checksum: Some(Checksum { algorithm: Algorithm::Sha256, hex: job.sha256.clone() }),
        checksum_field: "spec.import.checksum",
        packing: match job.format {
            ImageFormat::Raw => Packing::AsIs,
            ImageFormat::Qcow2 => Packing::Qcow2,
        },
        user_agent: format!("metalplane-dpu-agent/{}", runtime::version::VERSION),
        authorities: authorities.into(),
        authorities_field: CA_BUNDLE,
        access: None,
        proxies: Proxies::default(),
    };
    let target = Target {
        name: format!("volume {}", job.volume),
        size_bytes: job.size_bytes,
        too_small: "ask for a larger size",
        rest: Rest::Zeroed,
        wipe: false,
    };
    let stopped = async {
        // Sent or dropped: both mean stop.
        let _ = stopped.await;
        format!("the import of {url} was stopped")
    };
    let of = AtomicU64::new(0);
    let copied = imaging::copy(&source, target, disk, &Progress { bytes: &progress, of: &of, wake }, stopped).await;
    job.place.close().await;
    let copied = copied.map_err(port_error)?;
    tracing::info!(url, bytes = copied.bytes, "imported");
    Ok(ImportDone { bytes: copied.bytes, checksum: format!("sha256:{}", job.sha256) })
}

#[cfg(test)]
mod tests;
