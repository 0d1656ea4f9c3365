//! Files by `boot` and by others: a boot program by TFTP, an image by HTTP.

use super::load::{Moved, load, output};
use super::network::{Network, Place};
use super::parts::{Parts, Program};
use super::server::{self, Server, WEB};
use super::{figure, ground, ratios};
use crate::Figures;
use crate::args::Boot;
use crate::figure::Unit;
use crate::stage::Story;
use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio::process::Command;

const MIB: usize = 1 << 20;

/// What is served: a boot program, and an image of a disk.
pub struct Folder {
    pub path: PathBuf,
    /// Of the program: SHA-256 in hexadecimal digits.
    pub checksum: String,
    program_bytes: usize,
    pub image_bytes: u64,
    _folder: TempDir,
}

impl Folder {
    pub const PROGRAM: &str = "ipxe.efi";
    pub const IMAGE: &str = "disk.raw";

    /// Of programs of this machine, for what is packed and unpacked: random bytes do not pack, and zeros do too well. A quarter of the
    /// image is zeros.
    pub fn fill(story: &Story, options: &Boot) -> Result<Self> {
        let below = crate::root().join("target/bench");
        fs::create_dir_all(&below)?;
        let folder = tempfile::Builder::new().prefix("boot-").tempdir_in(&below).context("a folder")?;
        // atftpd takes no `..`, of which the workspace's path has one.
        let path = folder.path().canonicalize()?;
        let code = fs::read(std::env::current_exe()?).context("read this program")?;
        let program: Vec<u8> = code.iter().copied().cycle().take(usize::from(options.program_mib) * MIB).collect();
        fs::write(path.join(Self::PROGRAM), &program)?;
        let mut image = fs::File::create(path.join(Self::IMAGE))?;
        let mut left = code.chunks_exact(MIB).cycle();
        for number in 0..options.image_mib {
            match number % 4 {
                3 => image.write_all(&vec![0; MIB])?,
                _ => image.write_all(left.next().context("this program is larger than a MiB")?)?,
            }
        }
        story.say(&format!("a program of {} MiB, an image of {} MiB", options.program_mib, options.image_mib));
        Ok(Self {
            checksum: Sha256::digest(&program).iter().map(|byte| format!("{byte:02x}")).collect(),
            program_bytes: program.len(),
            image_bytes: u64::from(options.image_mib) * MIB as u64,
            path,
            _folder: folder,
        })
    }

    pub fn program(&self) -> PathBuf {
        self.path.join(Self::PROGRAM)
    }

    pub fn image(&self) -> PathBuf {
        self.path.join(Self::IMAGE)
    }
}

/// One way to ask for the program: its figure, block size and window.
const TFTP: [(&str, u16, u16); 3] = [("tftp512", 512, 1), ("tftp1468", 1468, 1), ("tftpWindow", 1468, 8)];

pub async fn measure(
    story: &Story,
    options: &Boot,
    (parts, folder): (&Parts, &Folder),
    network: &Network,
) -> Result<Figures> {
    let mut figures = Figures::new();
    let logs = tempfile::tempdir().context("a folder")?;
    for (name, block, window) in TFTP {
        // tftpd-hpa has no windows.
        let other = if window > 1 { &parts.atftpd } else { &parts.tftpd };
        let other = match other {
            Some(program) => Some(tftp_server(program, window, (folder, network), logs.path()).await?),
            None => None,
        };
        let below = format!("{}/{}", ground::mac(0), Folder::PROGRAM);
        let (mut ours, mut others, mut again) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            let moved = tftp(network, folder, Place::Boot, (&below, block, window)).await?;
            ours.push(speed(moved.bytes, moved.seconds));
            again.push(moved.again as f64);
            if other.is_some() {
                let moved = tftp(network, folder, Place::Files, (Folder::PROGRAM, block, window)).await?;
                others.push(speed(moved.bytes, moved.seconds));
            }
        }
        story.say(&format!("{name}: {ours:.1?} MiB/s, the other {others:.1?}, asked again {again:?}"));
        figures.insert(name.to_owned(), figure(Unit::Mebibytes, &ours)?);
        if let Some(server) = other {
            figures.insert(format!("{name}Ratio"), figure(Unit::Count, &ratios(&ours, &others))?);
            server.stop().await?;
        }
    }
    figures.extend(http(story, options, (parts, folder), network).await?);
    Ok(figures)
}

async fn tftp_server(
    program: &Program,
    window: u16,
    (folder, network): (&Folder, &Network),
    logs: &Path,
) -> Result<Server> {
    let namespace = network.namespace(Place::Files);
    match window {
        1 => server::tftpd(program, namespace, &folder.path, logs).await,
        _ => server::atftpd(program, namespace, &folder.path, logs).await,
    }
}

async fn tftp(
    network: &Network,
    folder: &Folder,
    place: Place,
    (file, block, window): (&str, u16, u16),
) -> Result<Moved> {
    let words = [
        "tftp".to_owned(),
        format!("--server={}", place.address()),
        format!("--file={file}"),
        format!("--block={block}"),
        format!("--window={window}"),
        format!("--sha256={}", folder.checksum),
    ];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let moved: Moved = load(&network.clients, &words).await.with_context(|| format!("TFTP of {place:?}"))?;
    ensure!(moved.bytes == folder.program_bytes as u64, "{} bytes came by TFTP of {place:?}", moved.bytes);
    Ok(moved)
}

/// The image, by curl: as a kernel's file of `boot`, and by nginx.
async fn http(story: &Story, options: &Boot, (parts, folder): (&Parts, &Folder), network: &Network) -> Result<Figures> {
    let logs = tempfile::tempdir().context("a folder")?;
    let nginx = server::nginx(&parts.nginx, network.namespace(Place::Files), &folder.path, logs.path()).await?;
    let image = Folder::IMAGE;
    let ours_url = format!("http://{}:7080/osie/{}/{image}", Place::Boot.address(), ground::mac(0));
    let other_url = format!("http://{}:{WEB}/{image}", Place::Files.address());
    let (mut ours, mut others) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        ours.push(curl(network, folder, &ours_url).await?);
        others.push(curl(network, folder, &other_url).await?);
    }
    nginx.stop().await?;
    story.say(&format!("HTTP: {ours:.0?} MiB/s, nginx {others:.0?}"));
    Ok([
        ("http".to_owned(), figure(Unit::Mebibytes, &ours)?),
        ("httpRatio".to_owned(), figure(Unit::Count, &ratios(&ours, &others))?),
    ]
    .into())
}

async fn curl(network: &Network, folder: &Folder, url: &str) -> Result<f64> {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &network.clients, "curl", "-sSf", "-o", "/dev/null"]);
    command.args(["-w", "%{size_download} %{time_total}", url]);
    let said = output(command, &format!("curl {url}")).await?;
    let (bytes, seconds) = said.split_once(' ').with_context(|| format!("curl says {said:?}"))?;
    let bytes: u64 = bytes.parse().with_context(|| format!("curl says {said:?}"))?;
    ensure!(bytes == folder.image_bytes, "{bytes} bytes came of {url}");
    Ok(speed(bytes, seconds.parse().with_context(|| format!("curl says {said:?}"))?))
}

/// MiB in a second.
pub fn speed(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / MIB as f64 / seconds
}
