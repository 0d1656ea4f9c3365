//! A tar archive, unpacked into a folder. The crate `tar` reads it; the files are made here, where every path and every link on the way is
//! followed with the folder as `/` (`openat2`): nothing leads out of it. What is there already is replaced, but for folders.
//!
//! Owners, modes, times and devices are those of the archive, by number; extended attributes where it has them (`SCHILY.xattr.`, as GNU tar
//! and bsdtar write them).

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use tar::{Archive, Entry, EntryType};

const XATTR: &str = "SCHILY.xattr.";
/// Of folders that the archive does not have itself.
const FOLDER: u32 = 0o755;

/// How many entries that was. The error names the entry.
pub fn unpack(root: &File, archive: &mut dyn Read) -> Result<u64, String> {
    let damaged = |error: io::Error| format!("the archive: {error}");
    let mut archive = Archive::new(archive);
    let (mut folders, mut count) = (Vec::new(), 0);
    for entry in archive.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let time = one(root, &mut entry).map_err(|error| format!("{name}: {error}"))?;
        folders.extend(time);
        count += 1;
    }
    // What was made in a folder has changed its time.
    for (path, time) in folders.iter().rev() {
        let set = |folder| Ok(rustix::fs::utimensat(folder, ".", time, AtFlags::empty())?);
        folder(root, path).and_then(set).map_err(|error| format!("{}: its time: {error}", path.display()))?;
    }
    Ok(count)
}

/// Of a folder: its time, which comes last.
fn one(root: &File, entry: &mut Entry<'_, &mut dyn Read>) -> io::Result<Option<(PathBuf, Timestamps)>> {
    let kind = entry.header().entry_type();
    if kind == EntryType::XGlobalHeader {
        return Ok(None);
    }
    let path = below(OsStr::from_bytes(&entry.path_bytes()))?;
    let about = About::of(entry)?;
    if kind == EntryType::Directory {
        let folder = make_folders(root, &path)?;
        // A folder that is opened for its path alone cannot be changed.
        let folder = File::from(rustix::fs::openat(&folder, ".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
        about.put(&folder, OsStr::new("."))?;
        return Ok(Some((path, about.times)));
    }
    let name = path.file_name().ok_or_else(|| io::Error::other("it has no name, and is no folder"))?.to_owned();
    let parent = make_folders(root, path.parent().unwrap_or(Path::new("")))?;
    match rustix::fs::unlinkat(&parent, &name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    match kind {
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut file = File::from(rustix::fs::openat(&parent, &name, flags, Mode::from_raw_mode(0o600))?);
            io::copy(entry, &mut file)?;
        }
        EntryType::Symlink => rustix::fs::symlinkat(OsStr::from_bytes(&target(entry)?), &parent, &name)?,
        EntryType::Link => {
            let of = below(OsStr::from_bytes(&target(entry)?))?;
            let folder = folder(root, of.parent().unwrap_or(Path::new("")))?;
            let of = of.file_name().ok_or_else(|| io::Error::other("it is a link to a folder"))?;
            // Its owner and mode are those of the other name.
            return Ok(rustix::fs::linkat(&folder, of, &parent, &name, AtFlags::empty()).map(|()| None)?);
        }
        EntryType::Char | EntryType::Block | EntryType::Fifo => {
            let header = entry.header();
            let device = |kind| {
                let (major, minor) = (header.device_major()?, header.device_minor()?);
                let device = rustix::fs::makedev(major.unwrap_or_default(), minor.unwrap_or_default());
                Ok::<_, io::Error>((kind, device))
            };
            let (kind, device) = match kind {
                EntryType::Char => device(FileType::CharacterDevice)?,
                EntryType::Block => device(FileType::BlockDevice)?,
                // It has no numbers, and they may be blank.
                _ => (FileType::Fifo, 0),
            };
            rustix::fs::mknodat(&parent, &name, kind, Mode::from_raw_mode(0o600), device)?;
        }
        other => {
            return Err(io::Error::other(format!(
                "it is of a kind that is not known (type {:?})",
                other.as_byte() as char
            )));
        }
    }
    about.put(&parent, &name)?;
    Ok(None)
}

fn target(entry: &Entry<'_, &mut dyn Read>) -> io::Result<Vec<u8>> {
    let name = entry.link_name_bytes().filter(|name| !name.is_empty());
    name.map(std::borrow::Cow::into_owned).ok_or_else(|| io::Error::other("it is a link to nothing"))
}

/// Below the folder; empty: that itself.
fn below(path: &OsStr) -> io::Result<PathBuf> {
    let mut below = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(name) => below.push(name),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                return Err(io::Error::other(format!("{} has `..` in it", Path::new(path).display())));
            }
        }
    }
    Ok(below)
}

fn folder(root: &File, path: &Path) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)?)
}

/// The folder at the end of that path.
pub fn make_folders(root: &File, path: &Path) -> io::Result<OwnedFd> {
    let (mut at, mut inside) = (PathBuf::new(), folder(root, Path::new(""))?);
    for part in path.components() {
        at.push(part);
        match rustix::fs::mkdirat(&inside, part.as_os_str(), Mode::from_raw_mode(FOLDER)) {
            Ok(()) | Err(Errno::EXIST) => inside = folder(root, &at)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(inside)
}

/// What an archive says of an entry beside its content.
struct About {
    owner: Uid,
    group: Gid,
    /// A link has none of its own.
    mode: Option<Mode>,
    times: Timestamps,
    attributes: Vec<(OsString, Vec<u8>)>,
}

impl About {
    fn of(entry: &mut Entry<'_, &mut dyn Read>) -> io::Result<Self> {
        let header = entry.header();
        let id = |id: u64| u32::try_from(id).map_err(io::Error::other);
        let (owner, group) = (Uid::from_raw(id(header.uid()?)?), Gid::from_raw(id(header.gid()?)?));
        let is_link = header.entry_type() == EntryType::Symlink;
        let mode = (!is_link).then_some(Mode::from_raw_mode(header.mode()? & 0o7777));
        let time = Timespec { tv_sec: i64::try_from(header.mtime()?).map_err(io::Error::other)?, tv_nsec: 0 };
        let times = Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification: time };
        let mut attributes = Vec::new();
        for extension in entry.pax_extensions()?.into_iter().flatten() {
            let extension = extension?;
            if let Some(name) = extension.key_bytes().strip_prefix(XATTR.as_bytes()) {
                attributes.push((OsStr::from_bytes(name).to_owned(), extension.value_bytes().to_vec()));
            }
        }
        Ok(Self { owner, group, mode, times, attributes })
    }

    /// Of `name` in a folder. The owner first: a change of it takes set-user-id and capabilities away.
    fn put(&self, folder: &impl AsRawFd, name: &OsStr) -> io::Result<()> {
        let at = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
        let step = |step: &str, error: Errno| io::Error::other(format!("{step}: {}", io::Error::from(error)));
        let (here, link) = (rustix::fs::CWD, AtFlags::SYMLINK_NOFOLLOW);
        rustix::fs::chownat(here, &at, Some(self.owner), Some(self.group), link)
            .map_err(|error| step("its owner", error))?;
        if let Some(mode) = self.mode {
            rustix::fs::chmodat(here, &at, mode, AtFlags::empty()).map_err(|error| step("its mode", error))?;
        }
        for (key, value) in &self.attributes {
            rustix::fs::lsetxattr(&at, key.as_os_str(), value, XattrFlags::empty())
                .map_err(|error| step(&format!("its attribute {}", key.display()), error))?;
        }
        rustix::fs::utimensat(here, &at, &self.times, link).map_err(|error| step("its time", error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use tar::{Builder, Header};

    fn header(path: &str, kind: EntryType, mode: u32, size: usize) -> Header {
        let mut header = Header::new_gnu();
        // Whatever it is: `set_path` takes none that leads out.
        header.as_gnu_mut().expect("a GNU header").name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(1_000_000_000);
        header.set_uid(rustix::process::getuid().as_raw().into());
        header.set_gid(rustix::process::getgid().as_raw().into());
        header.set_size(size as u64);
        header
    }

    struct Tar(Builder<Vec<u8>>);

    impl Tar {
        fn new() -> Self {
            Self(Builder::new(Vec::new()))
        }

        fn file(mut self, path: &str, mode: u32, text: &str) -> Self {
            let mut header = header(path, EntryType::Regular, mode, text.len());
            header.set_cksum();
            self.0.append(&header, text.as_bytes()).expect("added");
            self
        }

        fn other(mut self, path: &str, kind: EntryType, target: &str) -> Self {
            let mut header = header(path, kind, 0o750, 0);
            header.as_gnu_mut().expect("a GNU header").linkname[..target.len()].copy_from_slice(target.as_bytes());
            header.set_cksum();
            self.0.append(&header, io::empty()).expect("added");
            self
        }

        fn into(self, folder: &Path) -> Result<u64, String> {
            let bytes = self.0.into_inner().expect("ended");
            unpack(&File::open(folder).expect("opened"), &mut bytes.as_slice())
        }
    }

    #[test]
    fn what_is_in_an_archive_is_made_as_it_says() {
        let disk = tempfile::tempdir().expect("a folder");
        let at = |path: &str| disk.path().join(path);
        fs::create_dir(at("etc")).expect("made");
        symlink("/etc/passwd", at("etc/replaced")).expect("linked");
        let long = format!("etc/{}", "long/".repeat(40));
        let mut tar = Tar::new().other("./", EntryType::Directory, "").other("etc/empty/", EntryType::Directory, "");
        tar.0.append_pax_extensions([("SCHILY.xattr.user.note", &b"a\0b"[..])]).expect("added");
        tar = tar.file("./etc/a", 0o4755, "text").file("etc/replaced", 0o640, "own").file("etc/empty/b", 0o600, "");
        tar = tar.other("etc/hard", EntryType::Link, "./etc/a").other("etc/soft", EntryType::Symlink, "../../x");
        tar = tar.other("etc/pipe", EntryType::Fifo, "");
        let mut deep = header("", EntryType::Regular, 0o644, 1);
        tar.0.append_data(&mut deep, &long[..long.len() - 1], &b"x"[..]).expect("added");
        assert_eq!(tar.into(disk.path()), Ok(9));
        let of = |path: &str| fs::symlink_metadata(at(path)).expect("there");
        assert_eq!(fs::read_to_string(at("etc/a")).expect("read"), "text");
        assert_eq!((of("etc/a").mode() & 0o7777, of("etc/a").mtime()), (0o4755, 1_000_000_000));
        assert_eq!((of("etc/empty").mode() & 0o7777, of("etc/empty").mtime()), (0o750, 1_000_000_000));
        assert_eq!(of("").permissions().mode() & 0o7777, 0o750, "the folder itself");
        assert_eq!(fs::read_to_string(at("etc/replaced")).expect("read"), "own", "a link is replaced, not followed");
        assert_eq!((of("etc/a").ino(), of("etc/a").nlink()), (of("etc/hard").ino(), 2));
        assert_eq!(fs::read_link(at("etc/soft")).expect("a link"), Path::new("../../x"));
        assert_eq!(of("etc/pipe").mode(), 0o010_750);
        assert_eq!(fs::read_to_string(at(&long[..long.len() - 1])).expect("read"), "x");
        let mut value = [0; 8];
        match rustix::fs::getxattr(at("etc/a"), "user.note", &mut value[..]) {
            Ok(length) => assert_eq!(&value[..length], b"a\0b"),
            Err(error) => panic!("the attribute: {error}"),
        }
    }

    #[test]
    fn nothing_leads_out_of_the_folder() {
        let (disk, outside) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let away = outside.path().to_string_lossy().into_owned();
        for (path, said) in [("../x", "`..`"), ("a/../../x", "`..`")] {
            let error = Tar::new().file(path, 0o644, "x").into(disk.path()).expect_err("refused");
            assert!(error.contains(said), "{path}: {error}");
        }
        let through = Tar::new().other("link", EntryType::Symlink, &away).file("link/x", 0o644, "x");
        let error = through.into(disk.path()).expect_err("its folder is not there");
        assert!(error.starts_with("link/x: "), "{error}");
        let up = Tar::new().other("up", EntryType::Symlink, "../../..").file("up/inside", 0o644, "x");
        assert_eq!(up.into(disk.path()), Ok(2));
        assert!(disk.path().join("inside").is_file(), "upwards, as far as the folder");
        fs::write(outside.path().join("secret"), "x").expect("written");
        let hard = Tar::new().other("hard", EntryType::Link, &format!("{away}/secret"));
        assert!(hard.into(disk.path()).is_err());
        assert_eq!(fs::read_dir(outside.path()).expect("listed").count(), 1);
    }
}
