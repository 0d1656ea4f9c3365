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
//! programs and in the image's labels, and for every architecture that is asked for, of which a node takes its own. The sandbox and the
//! tests run the others, for a second profile builds everything twice.

mod installer;
mod locked;
mod machine;
mod roots;
mod system;

use crate::go;
use crate::native;
use crate::programs::{self, Release, VERSION};
use crate::third_party;
use anyhow::{Context, Result};
use sandbox::architecture::Architecture;
use sandbox::oci::{self, Description};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use system::{DATA, EXECUTABLE, Member};

pub(crate) use installer::{Options as InstallerOptions, of_release as installer_of_release, run as installer};
pub(crate) use locked::{lay_out as lay_out_node_programs, renew as lock_packages};

#[derive(Default, clap::Args)]
pub(crate) struct Options {
    /// Names of images (controller, dpu-agent, csi, csi-provisioner, …); none: all
    names: Vec<String>,
    /// Build what ships: optimised, with the commit in it
    #[arg(long)]
    release: bool,
    /// Only for this architecture: amd64 or arm64; what ships only [default: both]
    #[arg(long, value_delimiter = ',', requires = "release")]
    arch: Vec<Architecture>,
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
    /// It presents disks of its own to servers: one with the installer, and one from which nothing starts.
    of_servers: bool,
}

/// In an image: the licences of what is compiled into its programs.
const NOTICE: &str = "/usr/share/doc/metalplane/third-party";

/// What `csi` starts on a node.
const NODE_PROGRAMS: &[&str] =
    &["blkid", "blockdev", "losetup", "mkfs.ext4", "mkfs.xfs", "mount", "resize2fs", "xfs_growfs"];

const IMAGES: [Image; 11] = [
    Image { roots: true, ..ours("controller", "controller") },
    Image { roots: true, beside: &["metalplane"], of_servers: true, ..ours("dpu-agent", "agent") },
    Image { roots: true, ..ours("boot", "boot") },
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
    Image { name, source: Source::Cargo, value, roots: false, beside: &[], system: &[], of_servers: false }
}

const fn theirs(name: &'static str, module: &'static str, value: &'static str) -> Image {
    Image { source: Source::Go(module), ..ours(name, value) }
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let (chosen, out) = (choose(&options.names)?, root.join(options.out()));
    if !options.release {
        return write_chosen(root, &chosen, None, &[Architecture::here()], &out);
    }
    let architectures: &[_] = if options.arch.is_empty() { &Architecture::ALL } else { &options.arch };
    write_chosen(root, &chosen, Some(&Release::of(root)?), architectures, &out)
}

/// All images, as they ship.
pub(crate) fn of_release(root: &Path, release: &Release, architectures: &[Architecture], out: &Path) -> Result<()> {
    write_chosen(root, &choose(&[])?, Some(release), architectures, out)
}

fn write_chosen(
    root: &Path,
    chosen: &[&Image],
    release: Option<&Release>,
    architectures: &[Architecture],
    out: &Path,
) -> Result<()> {
    let mut built = Vec::new();
    for architecture in architectures {
        built.push((*architecture, build(root, chosen, release, *architecture)?));
    }
    let of_servers = match chosen.iter().any(|image| image.of_servers) {
        true => installer::eraser(root, release, out)?.into_iter().chain(hold_disk(release)?).collect(),
        false => Vec::new(),
    };
    for image in chosen {
        let tar = out.join(format!("{}.tar", image.name));
        let mut variants = Vec::new();
        for (architecture, programs) in &built {
            if programs.contains_key(image.name) {
                let mut members = members(root, image, programs, release.map(|_| *architecture))?;
                if release.is_some() {
                    members.push(notice(root, image, *architecture, out)?);
                }
                members.extend(of_servers.iter().filter(|_| image.of_servers).cloned());
                variants.push(Variant { architecture: *architecture, members });
            }
        }
        if variants.is_empty() {
            // One of an earlier time would be installed with what is new.
            let _ = fs::remove_file(&tar);
            continue;
        }
        write(image.name, &variants, release, &tar)?;
        println!("{}", tar.display());
    }
    write_values(out)
}

/// What is in an image for one architecture. The first member is what it starts.
struct Variant {
    architecture: Architecture,
    members: Vec<Member>,
}

impl Variant {
    fn files(&self) -> Vec<(&Path, &str, u32)> {
        self.members.iter().map(|member| (member.source.as_path(), member.inside.as_str(), member.mode)).collect()
    }
}

/// `ships`: the architecture of an image that ships.
fn members(
    root: &Path,
    image: &Image,
    programs: &BTreeMap<&'static str, PathBuf>,
    ships: Option<Architecture>,
) -> Result<Vec<Member>> {
    let own = |name: &str| Member { source: programs[name].clone(), inside: format!("/{name}"), mode: EXECUTABLE };
    let mut members = vec![own(image.name)];
    if image.source == Source::Spdk {
        members.extend(system::libraries_of(&programs[image.name])?);
    }
    members.extend(image.beside.iter().map(|name| own(name)));
    members.extend(match ships {
        Some(architecture) => locked::members(image.system, architecture)?,
        None => system::members(image.system)?,
    });
    if image.roots {
        members.push(roots::member(root)?);
    }
    Ok(members)
}

/// The licences of what is compiled into the image's programs.
fn notice(root: &Path, image: &Image, architecture: Architecture, out: &Path) -> Result<Member> {
    let works = match image.source {
        Source::Go(module) => third_party::of_go(root, module, image.name)?,
        Source::Cargo | Source::Spdk => {
            let packages: Vec<&str> =
                [image.name].iter().chain(image.beside).map(|name| programs::package(name)).collect();
            third_party::of_rust(root, &packages, architecture)?
        }
    };
    let folder = out.join("third-party");
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let source = folder.join(format!("{}-{architecture}", image.name));
    let text = third_party::notice(&format!("The image {}", image.name), works);
    fs::write(&source, text).with_context(|| format!("write {}", source.display()))?;
    Ok(Member { source, inside: NOTICE.to_owned(), mode: DATA })
}

/// The programs of hold disks.
fn hold_disk(release: Option<&Release>) -> Result<Vec<Member>> {
    match release {
        Some(_) => locked::hold_disk(),
        None => {
            let programs = sandbox::guest::hold_disk::hold_disk(&sandbox::args::cache_folder())?;
            Ok(programs.into_iter().map(|(source, name)| hold_disk_member(source, name)).collect())
        }
    }
}

fn hold_disk_member(source: PathBuf, name: &str) -> Member {
    let machine = sandbox::guest::hold_disk::ARCHITECTURE.machine();
    Member { source, inside: format!("/usr/share/metalplane/hold-disk-{machine}/{name}"), mode: DATA }
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
fn build(
    root: &Path,
    images: &[&Image],
    release: Option<&Release>,
    architecture: Architecture,
) -> Result<BTreeMap<&'static str, PathBuf>> {
    let mut programs = BTreeMap::new();
    let own = images.iter().filter(|image| image.source == Source::Cargo).map(|image| image.name);
    let ours: Vec<&'static str> = own.chain(images.iter().flat_map(|image| image.beside.iter().copied())).collect();
    if !ours.is_empty() {
        programs.extend(match release {
            Some(release) => programs::release(root, &ours, release, architecture)?,
            None => programs::build(root, &ours)?,
        });
    }
    for image in images {
        match image.source {
            Source::Cargo => {}
            Source::Go(module) => drop(programs.insert(image.name, of_go(root, module, image.name, architecture)?)),
            Source::Spdk if architecture != Architecture::here() => {
                eprintln!(
                    "image: SKIP {} for {architecture}: SPDK is built on a machine of that architecture",
                    image.name
                );
            }
            Source::Spdk => match native::build(root, release)? {
                Ok(program) => drop(programs.insert(image.name, program)),
                Err(missing) => eprintln!("image: SKIP {}: {missing}", image.name),
            },
        }
    }
    Ok(programs)
}

/// Of this machine's architecture with everything else of the module, which is built once and kept; of another one alone.
fn of_go(root: &Path, module: &str, name: &str, architecture: Architecture) -> Result<PathBuf> {
    let mut script = go::script(root, module);
    if architecture != Architecture::here() {
        script.arg(name).env("GOARCH", architecture.name());
    }
    Ok(go::build(script)?.join(name))
}

/// Writes an image unless the file is that very image already; gives its reference.
fn write(name: &str, variants: &[Variant], release: Option<&Release>, tar: &Path) -> Result<String> {
    for Variant { architecture, members } in variants {
        members.iter().try_for_each(|member| machine::check(&member.source, *architecture))?;
    }
    let kind = release.map_or("dev", |_| VERSION);
    let reference = format!("metalplane.io/{name}:{kind}-{}", &content(variants)?[..12]);
    if tar.exists() && oci::read_name(tar).is_ok_and(|present| present.reference == reference) {
        return Ok(reference);
    }
    eprintln!("writing {reference}");
    let start: Vec<&str> = variants[0].members.iter().take(1).map(|member| member.inside.as_str()).collect();
    let labels: Vec<(&str, &str)> = release.iter().flat_map(|release| release.labels()).collect();
    let description =
        Description { reference: &reference, entrypoint: &start, labels: &labels, compressed: release.is_some() };
    let files: Vec<_> = variants.iter().map(Variant::files).collect();
    let files: Vec<_> = variants.iter().zip(&files).map(|(of, files)| (of.architecture, files.as_slice())).collect();
    oci::write_images(tar, description, &files)?;
    Ok(reference)
}

/// Digest of everything that goes into an image.
fn content(variants: &[Variant]) -> Result<String> {
    let mut digest = Sha256::new();
    for Variant { architecture, members } in variants {
        digest.update(architecture.name());
        for Member { source, inside, mode } in members {
            digest.update(inside);
            digest.update(mode.to_le_bytes());
            let mut file = File::open(source).with_context(|| format!("read {}", source.display()))?;
            std::io::copy(&mut file, &mut digest).with_context(|| format!("read {}", source.display()))?;
        }
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
        let members = vec![Member { source: program.clone(), inside: "/x".to_owned(), mode: EXECUTABLE }];
        let variants = [Variant { architecture: Architecture::here(), members }];
        let of = |release| write("x", &variants, release, &tar).expect("image");
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
