//! What a manifest says of its layers, and which of them is the disk (OCI image specification).
//!
//! As Tinkerbell's `oci2disk` and the `oras push` that it is for have it: the layer's type is that of a tar archive, which it is not, and
//! the annotation `org.opencontainers.image.title` has the name of the file that was pushed. A layer of a container's image has no title.

use crate::Checksum;
use serde::Deserialize;
use std::collections::BTreeMap;

const IMAGE: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Of the header `Accept`. Docker's own are asked for to be told by their name, and not as an image that is not there.
pub(super) const ACCEPT: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json";
const DISK: &str = "application/vnd.oci.image.layer.v1.tar";
const TITLE: &str = "org.opencontainers.image.title";
/// In one message.
const TOLD: usize = 10;

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    media_type: String,
    pub(super) digest: String,
    pub(super) size: u64,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    media_type: Option<String>,
    #[serde(default)]
    layers: Vec<Descriptor>,
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

#[derive(Debug)]
pub(super) enum Manifest {
    Image(Vec<Descriptor>),
    Index(Vec<Descriptor>),
}

#[derive(Debug)]
pub(super) struct Disk<'a> {
    pub(super) layer: &'a Descriptor,
    pub(super) others: Vec<&'a Descriptor>,
}

impl Descriptor {
    pub(super) fn title(&self) -> Option<&str> {
        self.annotations.get(TITLE).map(String::as_str).filter(|title| !title.is_empty())
    }

    /// The digest, which is a part of an URL, too.
    pub(super) fn checksum(&self) -> Result<Checksum, String> {
        self.digest.parse().map_err(|error| format!("a digest of its manifest: {error}"))
    }

    pub(super) fn told(&self) -> String {
        let title = self.title().map_or_else(|| " without a title".to_owned(), |title| format!(" {title:?}"));
        format!("{}{title} ({}, {} bytes)", self.media_type, self.digest, self.size)
    }
}

impl Manifest {
    /// `kind`: of the header `Content-Type`. What the document says of itself comes first.
    pub(super) fn parse(bytes: &[u8], kind: Option<&str>) -> Result<Self, String> {
        let document: Document =
            serde_json::from_slice(bytes).map_err(|error| format!("its manifest cannot be read: {error}"))?;
        let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
        match document.media_type.as_deref().or(kind) {
            Some(IMAGE) => Ok(Self::Image(document.layers)),
            Some(INDEX) => Ok(Self::Index(document.manifests)),
            other => Err(format!(
                "its manifest is {}, not {IMAGE}: push the image of the disk with `oras push`",
                other.unwrap_or("of no type")
            )),
        }
    }

    pub(super) fn is_index(&self) -> bool {
        matches!(self, Self::Index(_))
    }

    /// Of an index, the one manifest that is in it.
    pub(super) fn only(&self) -> Result<Option<&Descriptor>, String> {
        match self {
            Self::Image(_) => Ok(None),
            Self::Index(manifests) => match manifests.as_slice() {
                [only] => Ok(Some(only)),
                all => Err(format!(
                    "it is an index of {} manifests ({}): write the digest of the one that is meant",
                    all.len(),
                    list(all.iter())
                )),
            },
        }
    }

    pub(super) fn disk(&self) -> Result<Disk<'_>, String> {
        let (Self::Image(layers) | Self::Index(layers)) = self;
        let (disks, others): (Vec<_>, Vec<_>) =
            layers.iter().partition(|layer| layer.media_type == DISK && layer.title().is_some());
        let push = "push the image of the disk alone, with `oras push`";
        match (disks.as_slice(), others.as_slice()) {
            ([layer], _) => Ok(Disk { layer, others }),
            ([], []) => Err(format!("it has no layer: {push}")),
            ([], _) => Err(format!(
                "none of its layers is the image of a disk, which has the type {DISK} and the annotation {TITLE}; it has {}: {push}",
                list(others.into_iter())
            )),
            (_, _) => Err(format!(
                "{} of its layers may be the image of the disk: {}: {push}",
                disks.len(),
                list(disks.into_iter())
            )),
        }
    }
}

fn list<'a>(all: impl ExactSizeIterator<Item = &'a Descriptor>) -> String {
    let more = all.len().saturating_sub(TOLD);
    let told: Vec<_> = all.take(TOLD).map(Descriptor::told).collect();
    let more = if more == 0 { String::new() } else { format!(", and {more} more") };
    told.join(", ") + &more
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn layer(kind: &str, title: Option<&str>) -> Value {
        let annotations = title.map(|title| json!({TITLE: title})).unwrap_or(json!({}));
        json!({"mediaType": kind, "digest": DIGEST, "size": 7, "annotations": annotations})
    }

    fn parse(document: &Value, kind: Option<&str>) -> Result<Manifest, String> {
        Manifest::parse(document.to_string().as_bytes(), kind)
    }

    fn image(layers: &[Value]) -> Manifest {
        parse(&json!({"schemaVersion": 2, "layers": layers}), Some("application/vnd.oci.image.manifest.v1+json; x=y"))
            .expect("an image")
    }

    #[test]
    fn the_one_layer_with_a_title_is_the_disk() {
        let manifest =
            image(&[layer("application/spdx+json", Some("sbom")), layer(DISK, Some("disk.raw.gz")), layer(DISK, None)]);
        let disk = manifest.disk().expect("one");
        assert_eq!((disk.layer.title(), disk.others.len()), (Some("disk.raw.gz"), 2));
    }

    #[test]
    fn what_has_no_disk_or_several_is_told_with_what_it_has() {
        for (layers, said) in [
            (vec![], "it has no layer"),
            (vec![layer(DISK, None)], "layer.v1.tar without a title (sha256:e3b0"),
            (vec![layer(DISK, Some(""))], "without a title"),
            (vec![layer("application/vnd.oci.image.layer.v1.tar+gzip", Some("disk"))], "tar+gzip \"disk\""),
            (vec![layer(DISK, Some("one")), layer(DISK, Some("two"))], "2 of its layers"),
        ] {
            let error = image(&layers).disk().map(|disk| disk.layer.told()).expect_err(said);
            assert!(error.contains(said) && error.contains("oras push"), "{error}");
        }
    }

    #[test]
    fn an_index_of_one_leads_on_and_others_are_told() {
        let index =
            |manifests: &[Value]| parse(&json!({"mediaType": INDEX, "manifests": manifests}), None).expect("an index");
        let (one, two) = (index(&[layer(IMAGE, None)]), index(&[layer(IMAGE, None), layer(IMAGE, None)]));
        assert_eq!(one.only().expect("one").map(|inner| inner.digest.as_str()), Some(DIGEST));
        assert!(two.only().expect_err("two").contains("index of 2 manifests"));
        assert!(index(&[]).only().expect_err("none").contains("index of 0 manifests"));
    }

    #[test]
    fn another_kind_of_manifest_is_told() {
        let docker = "application/vnd.docker.distribution.manifest.v2+json";
        for (document, kind, said) in [
            (json!({"mediaType": docker, "layers": []}), Some(IMAGE), docker),
            (json!({"layers": []}), None, "of no type"),
            (json!({"layers": [{"mediaType": DISK}]}), Some(IMAGE), "cannot be read"),
            (json!([]), Some(IMAGE), "cannot be read"),
        ] {
            let error = parse(&document, kind).map(|_| ()).expect_err(said);
            assert!(error.contains(said), "{error}");
        }
        let mut path = layer(DISK, Some("disk"));
        path["digest"] = json!("sha256:../../x");
        assert!(image(&[path]).disk().expect("one").layer.checksum().is_err(), "a digest is not a path");
    }
}
