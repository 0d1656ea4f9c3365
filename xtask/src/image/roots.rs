//! The certificate authorities that Mozilla trusts, where programs look for those of a system: an image has no system below it, and
//! without them no `https` image source and no BMC with a public certificate can be verified.

use super::system::{DATA, Member};
use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fs;
use std::path::Path;

const INSIDE: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Characters of a line (RFC 7468, section 2).
const LINE: usize = 64;

/// Where the file is written, below the workspace.
const FOLDER: &str = "target/certificates";

pub(super) fn member(root: &Path) -> Result<Member> {
    let folder = root.join(FOLDER);
    let source = folder.join("ca-certificates.crt");
    let all: String = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().map(|root| pem(root)).collect();
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    fs::write(&source, all).with_context(|| format!("write {}", source.display()))?;
    Ok(Member { source, inside: INSIDE.to_owned(), mode: DATA })
}

/// RFC 7468, section 5.
fn pem(certificate: &[u8]) -> String {
    let text = STANDARD.encode(certificate);
    let mut lines = vec!["-----BEGIN CERTIFICATE-----"];
    lines.extend(text.as_bytes().chunks(LINE).filter_map(|line| std::str::from_utf8(line).ok()));
    lines.push("-----END CERTIFICATE-----\n");
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openssl_reads_every_authority() {
        let folder = tempfile::tempdir().expect("a folder");
        let member = member(folder.path()).expect("written");
        let count = webpki_root_certs::TLS_SERVER_ROOT_CERTS.len();
        assert!(count > 100, "{count} authorities");
        let mut openssl = std::process::Command::new("openssl");
        let done = openssl.args(["storeutl", "-noout", "-certs"]).arg(&member.source).output();
        let Ok(done) = done else {
            eprintln!("SKIP openssl_reads_every_authority: openssl is not installed");
            return;
        };
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(said.contains(&format!("Total found: {count}")), "{said} {}", String::from_utf8_lossy(&done.stderr));
    }
}
