//! The clusters that a process can reach, and the images in them.

use crate::DRIVER;
use crate::header::{Header, Place};
use crate::tools::Tools;
use planner::target::{self, RbdImage, Target};
use ports::volume::Volume;
use ports::{ErrorClass, PortError};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// How a cluster is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Without `client.`.
    pub user: String,
    /// Names the monitors and the key ring.
    pub config_file: PathBuf,
}

#[derive(Debug, Clone, Default)]
pub struct Clusters {
    /// By what ceph-csi calls `clusterID`.
    known: BTreeMap<String, Cluster>,
    tools: Tools,
}

/// What `rbd info` says, as much as is needed.
#[derive(Deserialize)]
pub(crate) struct Info {
    id: String,
    pub size: u64,
}

impl Clusters {
    pub fn new(known: BTreeMap<String, Cluster>) -> Self {
        Self { known, tools: Tools::default() }
    }

    /// Ceph's programs are started with these variables besides, as where they and their libraries are.
    #[must_use]
    pub fn with_environment(mut self, environment: BTreeMap<String, String>) -> Self {
        self.tools = Tools::new(environment);
        self
    }

    pub(crate) fn image(&self, volume: &Volume, what: &str) -> Result<RbdImage, PortError> {
        let invalid = |cause: String| PortError::new(ErrorClass::Invalid, format!("{what}: {cause}"));
        match target::of(&volume.driver, &volume.handle, &volume.attributes) {
            Some(Ok(Target::Rbd(image))) => Ok(image),
            Some(Err(refusal)) => Err(invalid(refusal.to_string())),
            _ => Err(invalid(format!("it is no volume of {DRIVER}"))),
        }
    }

    pub(crate) fn cluster(&self, id: &str, what: &str) -> Result<&Cluster, PortError> {
        self.known.get(id).ok_or_else(|| {
            let known: Vec<_> = self.known.keys().map(String::as_str).collect();
            let cause = format!("the cluster {id} is not known here (known: {})", known.join(", "));
            PortError::new(ErrorClass::NotFound, format!("{what}: {cause}"))
        })
    }

    pub(crate) fn tools(&self) -> &Tools {
        &self.tools
    }

    /// The image's header. Images are told apart by their ids: another one may get the name.
    pub(crate) async fn header<'a>(&'a self, volume: &Volume, what: &'a str) -> Result<Header<'a>, PortError> {
        let image = self.image(volume, what)?;
        let (cluster, info) = (self.cluster(&image.cluster_id, what)?, self.info(&image, what).await?);
        let place = Place {
            cluster: image.cluster_id,
            pool: image.pool,
            namespace: image.namespace,
            object: format!("rbd_header.{}", info.id),
        };
        Ok(Header::new(self, place, cluster, what))
    }

    pub(crate) async fn info(&self, image: &RbdImage, what: &str) -> Result<Info, PortError> {
        let cluster = self.cluster(&image.cluster_id, what)?;
        let mut arguments = vec!["info", "--format", "json", "--pool", &image.pool, "--image", &image.image];
        if let Some(namespace) = &image.namespace {
            arguments.extend(["--namespace", namespace]);
        }
        let said = self.tools.run("rbd", cluster, &arguments, what).await?;
        let unread = |error| {
            let cause = format!("{what}: what `rbd info` says of {}/{}: {error}", image.pool, image.image);
            PortError::new(ErrorClass::Invalid, cause)
        };
        serde_json::from_str(&said).map_err(unread)
    }
}
