//! `cargo xtask image`: container images of our programs and of the sidecars that we build, one file each.
//!
//! An image is the static program and nothing else, but for the CSI driver's: its node plug-in runs programs of the system
//! ([`system`]). Its tag carries the digest of its content (`dev-<12 digits>`), so a
//! changed program has a new reference, a node imports only what it lacks, and a DaemonSet rolls when its program
//! changed and not otherwise. Beside the images lies `values.yaml` with their references for the chart.

mod system;

use anyhow::{Context, Result, ensure};
use sandbox::oci;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use system::Member;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Names of images (controller, dpu-agent, csi, csi-provisioner, …); none: all
    names: Vec<String>,
    /// Where the images go
    #[arg(long, default_value = "target/images")]
    out: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Self { names: Vec::new(), out: "target/images".into() }
    }
}

/// Who builds the program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Source {
    /// cargo: a package and program of the image's name.
    Cargo,
    /// `tools/build.sh` with this module.
    Go(&'static str),
}

struct Image {
    name: &'static str,
    source: Source,
    /// Its key below `images` in the chart's values.
    value: &'static str,
    /// Programs of the system that it runs.
    system: &'static [&'static str],
}

/// What `csi` starts on a node.
const NODE_PROGRAMS: &[&str] =
    &["blkid", "blockdev", "losetup", "mkfs.ext4", "mkfs.xfs", "mount", "resize2fs", "xfs_growfs"];

const IMAGES: [Image; 9] = [
    Image { name: "controller", source: Source::Cargo, value: "controller", system: &[] },
    Image { name: "dpu-agent", source: Source::Cargo, value: "agent", system: &[] },
    Image { name: "boot", source: Source::Cargo, value: "boot", system: &[] },
    Image { name: "csi", source: Source::Cargo, value: "csi", system: NODE_PROGRAMS },
    Image { name: "csi-provisioner", source: Source::Go("provisioner"), value: "provisioner", system: &[] },
    Image { name: "csi-attacher", source: Source::Go("kubernetes"), value: "attacher", system: &[] },
    Image { name: "csi-resizer", source: Source::Go("kubernetes"), value: "resizer", system: &[] },
    Image { name: "csi-snapshotter", source: Source::Go("kubernetes"), value: "snapshotter", system: &[] },
    Image { name: "snapshot-controller", source: Source::Go("kubernetes"), value: "snapshotController", system: &[] },
];

pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let chosen = choose(&options.names)?;
    let out = root.join(&options.out);
    let programs = build(root, &chosen)?;
    for image in chosen {
        let tar = out.join(format!("{}.tar", image.name));
        let mut members = vec![Member { source: programs[image.name].clone(), inside: format!("/{}", image.name) }];
        members.extend(system::members(image.system)?);
        write(image.name, &members, &tar)?;
        println!("{}", tar.display());
    }
    write_values(&out)
}

/// The references of every image in the folder, of this call or an earlier one.
fn write_values(out: &Path) -> Result<()> {
    let mut values = BTreeMap::new();
    for image in IMAGES {
        let tar = out.join(format!("{}.tar", image.name));
        if tar.exists() {
            values.insert(image.value, oci::read_name(&tar)?.reference);
        }
    }
    let text = serde_saphyr::to_string(&json!({"images": values})).context("write the chart's values")?;
    let path = out.join("values.yaml");
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

fn choose(names: &[String]) -> Result<Vec<&'static Image>> {
    if names.is_empty() {
        return Ok(IMAGES.iter().collect());
    }
    let known = || IMAGES.map(|image| image.name).join(", ");
    let find = |name: &String| IMAGES.iter().find(|image| image.name == *name);
    names.iter().map(|name| find(name).with_context(|| format!("no image {name:?}; there are {}", known()))).collect()
}

/// Builds the programs of the images; gives the path of each.
fn build(root: &Path, images: &[&Image]) -> Result<BTreeMap<&'static str, PathBuf>> {
    let mut programs = BTreeMap::new();
    let ours: Vec<&'static str> =
        images.iter().filter(|image| image.source == Source::Cargo).map(|image| image.name).collect();
    if !ours.is_empty() {
        programs.extend(crate::programs::build(root, &ours)?);
    }
    for image in images {
        if let Source::Go(module) = image.source {
            let mut script = Command::new(root.join("tools/build.sh"));
            let done = script.arg(module).stderr(Stdio::inherit()).output().context("run tools/build.sh")?;
            ensure!(done.status.success(), "tools/build.sh {module}: {} (its output is above)", done.status);
            let folder = PathBuf::from(String::from_utf8_lossy(&done.stdout).trim());
            programs.insert(image.name, folder.join(image.name));
        }
    }
    Ok(programs)
}

/// Writes an image unless the file is that very image already; gives its reference. The first member is what it starts.
fn write(name: &str, members: &[Member], tar: &Path) -> Result<String> {
    let reference = format!("metalplane.io/{name}:dev-{}", &content(members)?[..12]);
    if tar.exists() && oci::read_name(tar).is_ok_and(|present| present.reference == reference) {
        return Ok(reference);
    }
    eprintln!("writing {reference}");
    let files: Vec<(&Path, &str, u32)> =
        members.iter().map(|member| (member.source.as_path(), member.inside.as_str(), 0o755)).collect();
    let start: Vec<&str> = files.iter().take(1).map(|(_, inside, _)| *inside).collect();
    oci::write_image(tar, &reference, &files, &start)?;
    Ok(reference)
}

/// Digest of everything that goes into an image.
fn content(members: &[Member]) -> Result<String> {
    let mut digest = Sha256::new();
    for Member { source, inside } in members {
        digest.update(inside);
        let mut file = File::open(source).with_context(|| format!("read {}", source.display()))?;
        std::io::copy(&mut file, &mut digest).with_context(|| format!("read {}", source.display()))?;
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_program_has_a_new_tag_and_an_unchanged_one_is_not_written_again() {
        let folder = tempfile::tempdir().expect("folder");
        let (program, tar) = (folder.path().join("program"), folder.path().join("images/x.tar"));
        fs::write(&program, "one").expect("written");
        let members = [Member { source: program.clone(), inside: "/x".to_owned() }];
        let first = write("x", &members, &tar).expect("image");
        assert!(
            first.starts_with("metalplane.io/x:dev-") && first.len() == "metalplane.io/x:dev-".len() + 12,
            "{first}"
        );
        let stamp = fs::metadata(&tar).and_then(|meta| meta.modified()).expect("time");
        assert_eq!(write("x", &members, &tar).expect("image"), first);
        assert_eq!(fs::metadata(&tar).and_then(|meta| meta.modified()).expect("time"), stamp);
        fs::write(&program, "two").expect("written");
        let second = write("x", &members, &tar).expect("image");
        assert_ne!(first, second);
        assert_eq!(oci::read_name(&tar).expect("name").reference, second);
    }

    #[test]
    fn the_charts_values_have_every_image() {
        let values = include_str!("../../../charts/metalplane/values.yaml");
        let values: serde_json::Value = serde_saphyr::from_str(values).expect("the chart's values");
        for image in IMAGES {
            assert!(values["images"][image.value].is_string(), "images.{} is not in the chart's values", image.value);
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = choose(&["agent".to_owned()]).err().expect("refused").to_string();
        assert!(error.contains("dpu-agent"), "{error}");
    }
}
