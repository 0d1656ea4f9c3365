//! `cargo xtask image`: container images of our programs and of the sidecars that we build, one file each.
//!
//! An image is the static program and nothing else, but for the CSI driver's, whose node plug-in runs programs of the system
//! ([`system`]), the agent's, which brings the CNI plugin to a node, those that verify certificates of others ([`roots`]), and
//! that of `spdk-target`, which has the shared libraries that SPDK needs and is written where SPDK is ([`crate::native`]). Its tag carries the digest of its content
//! (`dev-<12 digits>`, `<version>-<12 digits>` of a release), so a
//! changed program has a new reference, a node imports only what it lacks, and a DaemonSet rolls when its program
//! changed and not otherwise. Beside the images lies `values.yaml` with their references for the chart.
//!
//! With `--release` (`make images`) they are what ships: optimised, without what only tests ask of a library, with the commit in the
//! programs and in the image's labels. The sandbox and the tests run the others, for a second profile builds everything twice.

mod installer;
mod roots;
mod system;

use crate::native;
use crate::programs::{Release, VERSION};
use anyhow::{Context, Result, ensure};
use sandbox::oci::{self, Description};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use system::{EXECUTABLE, Member};

pub(crate) use installer::{Options as InstallerOptions, of_release as installer_of_release, run as installer};

#[derive(Default, clap::Args)]
pub(crate) struct Options {
    /// Names of images (controller, dpu-agent, csi, csi-provisioner, …); none: all
    names: Vec<String>,
    /// Build what ships: optimised, with the commit in it
    #[arg(long)]
    release: bool,
    /// Where the images go [default: target/images; with --release target/release-images]
    #[arg(long)]
    out: Option<PathBuf>,
}

impl Options {
    fn out(&self) -> &Path {
        let default = if self.release { "target/release-images" } else { "target/images" };
        self.out.as_deref().unwrap_or(Path::new(default))
    }
}

/// Who builds the program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Source {
    /// cargo: a package and program of the image's name.
    Cargo,
    /// `tools/build.sh` with this module.
    Go(&'static str),
    /// cargo, with the SPDK of this machine. Left out by name where there is none.
    Spdk,
}

struct Image {
    name: &'static str,
    source: Source,
    /// Its key below `images` in the chart's values.
    value: &'static str,
    /// It verifies certificates that public authorities have signed.
    roots: bool,
    /// Programs of the workspace that are in it beside its own.
    beside: &'static [&'static str],
    /// Programs of the system that it runs.
    system: &'static [&'static str],
}

/// What `csi` starts on a node.
const NODE_PROGRAMS: &[&str] =
    &["blkid", "blockdev", "losetup", "mkfs.ext4", "mkfs.xfs", "mount", "resize2fs", "xfs_growfs"];

const IMAGES: [Image; 11] = [
    Image { roots: true, ..ours("controller", "controller") },
    Image { roots: true, beside: &["metalplane"], ..ours("dpu-agent", "agent") },
    ours("boot", "boot"),
    Image { system: NODE_PROGRAMS, ..ours("csi", "csi") },
    ours("pause", "holder"),
    Image { source: Source::Spdk, ..ours("spdk-target", "spdkTarget") },
    theirs("csi-provisioner", "provisioner", "provisioner"),
    theirs("csi-attacher", "kubernetes", "attacher"),
    theirs("csi-resizer", "kubernetes", "resizer"),
    theirs("csi-snapshotter", "kubernetes", "snapshotter"),
    theirs("snapshot-controller", "kubernetes", "snapshotController"),
];

const fn ours(name: &'static str, value: &'static str) -> Image {
    Image { name, source: Source::Cargo, value, roots: false, beside: &[], system: &[] }
}

const fn theirs(name: &'static str, module: &'static str, value: &'static str) -> Image {
    Image { source: Source::Go(module), ..ours(name, value) }
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let release = if options.release { Some(Release::of(root)?) } else { None };
    write_chosen(root, &choose(&options.names)?, release.as_ref(), &root.join(options.out()))
}

/// All images, as they ship.
pub(crate) fn of_release(root: &Path, release: &Release, out: &Path) -> Result<()> {
    write_chosen(root, &choose(&[])?, Some(release), out)
}

fn write_chosen(root: &Path, chosen: &[&Image], release: Option<&Release>, out: &Path) -> Result<()> {
    let programs = build(root, chosen, release)?;
    for image in chosen {
        let tar = out.join(format!("{}.tar", image.name));
        let Some(source) = programs.get(image.name).cloned() else {
            // One of an earlier time would be installed with what is new.
            let _ = fs::remove_file(&tar);
            continue;
        };
        let mut members = vec![];
        if image.source == Source::Spdk {
            members.extend(system::libraries_of(&source)?);
        }
        members.insert(0, Member { source, inside: format!("/{}", image.name), mode: EXECUTABLE });
        members.extend(image.beside.iter().map(|name| Member {
            source: programs[name].clone(),
            inside: format!("/{name}"),
            mode: EXECUTABLE,
        }));
        members.extend(system::members(image.system)?);
        if image.roots {
            members.push(roots::member(root)?);
        }
        write(image.name, &members, release, &tar)?;
        println!("{}", tar.display());
    }
    write_values(out)
}

/// The references of every image in the folder, of this call or an earlier one, by their keys in the chart's values.
pub(crate) fn references(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for image in IMAGES {
        let tar = folder.join(format!("{}.tar", image.name));
        if tar.exists() {
            found.insert(image.value.to_owned(), oci::read_name(&tar)?.reference);
        }
    }
    Ok(found)
}

fn write_values(out: &Path) -> Result<()> {
    let text = serde_saphyr::to_string(&json!({"images": references(out)?})).context("write the chart's values")?;
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

/// Builds the programs of the images; gives the path of each that can be built here.
fn build(root: &Path, images: &[&Image], release: Option<&Release>) -> Result<BTreeMap<&'static str, PathBuf>> {
    let mut programs = BTreeMap::new();
    let own = images.iter().filter(|image| image.source == Source::Cargo).map(|image| image.name);
    let ours: Vec<&'static str> = own.chain(images.iter().flat_map(|image| image.beside.iter().copied())).collect();
    if !ours.is_empty() {
        programs.extend(match release {
            Some(release) => crate::programs::release(root, &ours, release)?,
            None => crate::programs::build(root, &ours)?,
        });
    }
    for image in images {
        match image.source {
            Source::Cargo => {}
            Source::Go(module) => {
                let mut script = Command::new(root.join("tools/build.sh"));
                let done = script.arg(module).stderr(Stdio::inherit()).output().context("run tools/build.sh")?;
                ensure!(done.status.success(), "tools/build.sh {module}: {} (its output is above)", done.status);
                let folder = PathBuf::from(String::from_utf8_lossy(&done.stdout).trim());
                programs.insert(image.name, folder.join(image.name));
            }
            Source::Spdk => match native::build(root, release)? {
                Ok(program) => drop(programs.insert(image.name, program)),
                Err(missing) => eprintln!("image: SKIP {}: {missing}", image.name),
            },
        }
    }
    Ok(programs)
}

/// Writes an image unless the file is that very image already; gives its reference. The first member is what it starts.
fn write(name: &str, members: &[Member], release: Option<&Release>, tar: &Path) -> Result<String> {
    let kind = release.map_or("dev", |_| VERSION);
    let reference = format!("metalplane.io/{name}:{kind}-{}", &content(members)?[..12]);
    if tar.exists() && oci::read_name(tar).is_ok_and(|present| present.reference == reference) {
        return Ok(reference);
    }
    eprintln!("writing {reference}");
    let files: Vec<(&Path, &str, u32)> =
        members.iter().map(|member| (member.source.as_path(), member.inside.as_str(), member.mode)).collect();
    let start: Vec<&str> = files.iter().take(1).map(|(_, inside, _)| *inside).collect();
    let labels: Vec<(&str, &str)> = release.iter().flat_map(|release| release.labels()).collect();
    let description =
        Description { reference: &reference, entrypoint: &start, labels: &labels, compressed: release.is_some() };
    oci::write_image(tar, description, &files)?;
    Ok(reference)
}

/// Digest of everything that goes into an image.
fn content(members: &[Member]) -> Result<String> {
    let mut digest = Sha256::new();
    for Member { source, inside, mode } in members {
        digest.update(inside);
        digest.update(mode.to_le_bytes());
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
        let members = [Member { source: program.clone(), inside: "/x".to_owned(), mode: EXECUTABLE }];
        let of = |release| write("x", &members, release, &tar).expect("image");
        let first = of(None);
        assert!(
            first.starts_with("metalplane.io/x:dev-") && first.len() == "metalplane.io/x:dev-".len() + 12,
            "{first}"
        );
        let stamp = fs::metadata(&tar).and_then(|meta| meta.modified()).expect("time");
        assert_eq!(of(None), first);
        assert_eq!(fs::metadata(&tar).and_then(|meta| meta.modified()).expect("time"), stamp);
        fs::write(&program, "two").expect("written");
        let second = of(None);
        assert_ne!(first, second);
        assert_eq!(oci::read_name(&tar).expect("name").reference, second);
        let shipped = of(Some(&Release { commit: "1a2b3c4d5e6f".to_owned() }));
        assert!(shipped.starts_with(&format!("metalplane.io/x:{VERSION}-")), "{shipped}");
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
