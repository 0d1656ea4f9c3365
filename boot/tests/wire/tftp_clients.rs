//! TFTP's clients that others wrote, beside busybox's: tftp-hpa; atftp, with block sizes and with windows; and curl's.

use super::site::{US, client, path};
use sandbox::preflight;

/// Programs and their packages.
const HPA: (&str, &str) = ("tftp", "tftp-hpa");
const ATFTP: (&str, &str) = ("atftp", "atftp");

/// Inside there is no way out. What cannot be had is told there.
pub async fn prefetch() {
    for (program, package) in [HPA, ATFTP] {
        let _ = preflight::unpacked(program, package).await;
    }
}

/// The program and what it needs of its environment, for `env`.
async fn found(test: &str, (name, package): (&str, &str)) -> Option<[String; 2]> {
    match preflight::unpacked(name, package).await {
        Ok((program, environment)) => {
            let libraries = environment.get("LD_LIBRARY_PATH").map_or("", String::as_str);
            Some([format!("LD_LIBRARY_PATH={libraries}"), program.display().to_string()])
        }
        Err(reason) => {
            eprintln!("SKIP {test}, {package}: {reason:#}");
            None
        }
    }
}

pub async fn read(test: &str, dir: &tempfile::TempDir, file: &[u8]) {
    let got = path(dir, "got-by-others");
    let got_text = got.display().to_string();
    let reads = async |words: &[&str]| {
        std::fs::remove_file(&got).unwrap_or_default();
        let done = client(words).await;
        let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert!(done.status.success(), "{words:?}: {said}");
        assert!(std::fs::read(&got).expect("fetched") == file, "{words:?} read something else: {said}");
        said
    };
    if let Some([libraries, tftp]) = found(test, HPA).await {
        let get = ["env", &libraries, "timeout", "20", &tftp, "-m", "binary", US, "-c", "get", "ipxe.efi", &got_text];
        reads(&get).await;
        // The firmware of no server asks for a text.
        std::fs::remove_file(&got).unwrap_or_default();
        let text = get.map(|word| if word == "binary" { "ascii" } else { word });
        let refused = client(&text).await;
        assert!(std::fs::read(&got).unwrap_or_default().is_empty(), "{refused:?}");
    }
    if let Some([libraries, atftp]) = found(test, ATFTP).await {
        for options in [&[][..], &["blksize 1468"], &["blksize 512", "windowsize 8"], &["blksize 1024", "windowsize 3"]]
        {
            let mut words = vec!["env", &libraries, "timeout", "20", &atftp, "--trace", "--verbose"];
            options.iter().for_each(|option| words.extend(["--option", option]));
            words.extend(["--get", "-r", "ipxe.efi", "-l", &got_text, US]);
            let said = reads(&words).await;
            // Each option was taken, and not left out.
            let taken = said.lines().find(|line| line.starts_with("received OACK")).unwrap_or_default();
            for option in options {
                assert!(taken.contains(&option.replace(' ', ": ")), "{option}: {said}");
            }
        }
    }
    for size in ["8", "512", "1400"] {
        reads(&["curl", "-s", "--tftp-blksize", size, "-o", &got_text, &format!("tftp://{US}/ipxe.efi")]).await;
    }
}
