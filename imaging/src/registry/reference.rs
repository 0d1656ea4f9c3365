//! The name of an image: `registry.example:5000/path/name:tag`, with `@sha256:…` behind or instead of the tag.

use crate::Checksum;
use std::fmt;
use std::str::FromStr;
use url::Url;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// In the clear, because it was written with `http://`.
    pub(super) plain: bool,
    /// With its port.
    host: String,
    pub(super) name: String,
    tag: Option<String>,
    pub(super) digest: Option<Checksum>,
}

const EXAMPLE: &str = "write registry.example:5000/path/name:tag or …@sha256:<64 hex digits>";
/// Its registry has another name than its images (containerd, `remotes/docker`).
const DOCKER: (&str, &str) = ("docker.io", "registry-1.docker.io");

impl Reference {
    /// Whether a password would be read by everybody on the way.
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// What names the manifest: the digest, if there is one.
    pub(super) fn of(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => format!("{}:{}", digest.algorithm.as_str(), digest.hex),
            (None, tag) => tag.clone().unwrap_or_default(),
        }
    }

    /// OCI distribution specification: `/v2/<name>/manifests/<reference>`, `/v2/<name>/blobs/<digest>`.
    pub(super) fn url(&self, kind: &str, of: &str) -> String {
        format!("{}/v2/{}/{kind}/{of}", self.origin(), self.name)
    }

    pub(super) fn origin(&self) -> String {
        let scheme = if self.plain { "http" } else { "https" };
        let host = if self.host == DOCKER.0 { DOCKER.1 } else { &self.host };
        format!("{scheme}://{host}")
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.name)?;
        self.tag.iter().try_for_each(|tag| write!(f, ":{tag}"))?;
        self.digest.iter().try_for_each(|digest| write!(f, "@{}:{}", digest.algorithm.as_str(), digest.hex))
    }
}

impl FromStr for Reference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = |cause: &str| format!("{text:?} {cause}: {EXAMPLE}");
        let (plain, rest) = match text.split_once("://") {
            None => (false, text),
            Some(("https", rest)) => (false, rest),
            Some(("http", rest)) => (true, rest),
            Some((scheme, _)) => return Err(wanted(&format!("begins with {scheme}://"))),
        };
        let (host, path) = rest.split_once('/').ok_or_else(|| wanted("names no registry"))?;
        let url = Url::parse(&format!("https://{host}/"));
        let is_host = url.is_ok_and(|url| url.username().is_empty() && url.password().is_none() && url.path() == "/");
        if !is_host || host.contains(['@', '?', '#']) {
            return Err("the registry is no host with a port, or has a user in it: ".to_owned() + EXAMPLE);
        }
        let (path, digest) = match path.split_once('@') {
            None => (path, None),
            Some((path, digest)) => (path, Some(digest.parse::<Checksum>().map_err(|error| wanted(&error))?)),
        };
        let (name, tag) = match path.split_once(':') {
            None => (path, None),
            Some((name, tag)) => (name, Some(tag.to_owned())),
        };
        if !name.split('/').all(is_component) {
            return Err(wanted("has a name that is none (lower case, digits, and . _ - between them)"));
        }
        if tag.as_deref().is_some_and(|tag| !is_tag(tag)) {
            return Err(wanted("has a tag that is none (letters, digits, . _ -)"));
        }
        if tag.is_none() && digest.is_none() {
            return Err(wanted("has neither a tag nor a digest"));
        }
        Ok(Self { plain, host: host.to_owned(), name: name.to_owned(), tag, digest })
    }
}

fn is_component(part: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = part.bytes().next().zip(part.bytes().last());
    ends.is_some_and(|(first, last)| is_word(first) && is_word(last))
        && part.bytes().all(|byte| is_word(byte) || b"._-".contains(&byte))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|byte| is_word(byte) || b".-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_reference_says_where_its_manifest_is() {
        for (text, url) in [
            ("192.168.0.173/test/debian:raw.gz", "https://192.168.0.173/v2/test/debian/manifests/raw.gz".to_owned()),
            ("http://[::1]:5000/a:B-1_2.3", "http://[::1]:5000/v2/a/manifests/B-1_2.3".to_owned()),
            ("https://r.example/a/b-c:1", "https://r.example/v2/a/b-c/manifests/1".to_owned()),
            ("docker.io/a/b:1", "https://registry-1.docker.io/v2/a/b/manifests/1".to_owned()),
            (&format!("r:5000/a/b@{DIGEST}"), format!("https://r:5000/v2/a/b/manifests/{DIGEST}")),
            (&format!("r:5000/a/b:tag@{DIGEST}"), format!("https://r:5000/v2/a/b/manifests/{DIGEST}")),
        ] {
            let reference: Reference = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(reference.url("manifests", &reference.of()), url);
            assert_eq!(reference.is_plain(), text.starts_with("http://"));
        }
    }

    #[test]
    fn what_is_no_reference_is_told_with_what_to_write() {
        for (text, cause) in [
            ("debian:12", "names no registry"),
            ("ftp://r/a:1", "begins with ftp://"),
            ("r.example/a", "neither a tag nor a digest"),
            ("r.example/A:1", "a name that is none"),
            ("r.example/../a:1", "a name that is none"),
            ("r.example//a:1", "a name that is none"),
            ("r.example/a:", "a tag that is none"),
            ("r.example/a:1/2", "a tag that is none"),
            ("r.example/a:1?x=y", "a tag that is none"),
            ("r.example/a@sha256:12", "no checksum"),
            ("r.example:port/a:1", "no host with a port"),
            ("/a:1", "no host with a port"),
        ] {
            let error = text.parse::<Reference>().expect_err(text);
            assert!(error.contains(cause) && error.contains("write registry.example:5000/path"), "{text}: {error}");
        }
        let error = "ann:secret@r.example/a:1".parse::<Reference>().expect_err("a user");
        assert!(!error.contains("secret"), "{error}");
    }
}
