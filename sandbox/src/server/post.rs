//! The firmware's POST, as the BMC takes it: from a start of the host until OVMF says on the console what it boots, or shows its setup.
//! Nothing else tells of its end in a release of OVMF, and how long it takes is the machine's below: seconds with KVM, half a minute without.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Of each line about what it boots, or fails to boot; and of its setup's first page.
const OVER: [&[u8]; 2] = [b"BdsDxe: ", b"Boot Manager"];
/// So long a firmware that says nothing is taken to be in its POST.
const SILENT: Duration = Duration::from_secs(120);

pub struct Post {
    began: Instant,
    console: PathBuf,
    /// Where the console's log ended when it began.
    from: u64,
    over: bool,
}

impl Post {
    /// A start of the host whose console is logged there.
    pub fn begin(console: PathBuf) -> Post {
        let from = console.metadata().map_or(0, |log| log.len());
        Post { began: Instant::now(), console, from, over: false }
    }

    pub fn lasts(&self) -> Duration {
        self.began.elapsed()
    }

    pub fn is_running(&mut self) -> bool {
        if !self.over {
            // A log that cannot be read says nothing.
            let said = said(&self.console, self.from).unwrap_or_default();
            let is_said = |words: &&[u8]| said.windows(words.len()).any(|seen| seen == *words);
            self.over = OVER.iter().any(is_said) || self.lasts() > SILENT;
        }
        !self.over
    }
}

fn said(console: &Path, from: u64) -> std::io::Result<Vec<u8>> {
    let (mut log, mut said) = (std::fs::File::open(console)?, Vec::new());
    log.seek(SeekFrom::Start(from))?;
    log.read_to_end(&mut said)?;
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::io::Write;

    #[test]
    fn post_is_over_when_the_firmware_says_what_it_boots_or_shows_its_setup() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let console = folder.path().join("console.log");
        let say = |text: &str| {
            let log = OpenOptions::new().create(true).append(true).open(&console);
            log.and_then(|mut log| log.write_all(text.as_bytes())).expect("write to the console");
        };
        for end in ["BdsDxe: loading Boot0001", "BdsDxe: No bootable option", "Boot Manager"] {
            let mut post = Post::begin(console.clone());
            assert!(post.is_running(), "what an earlier start said is not this one's");
            say("\u{1b}[2J\u{1b}[01;01H");
            assert!(post.is_running());
            say(end);
            assert!(!post.is_running());
            assert!(!post.is_running());
        }
    }
}
