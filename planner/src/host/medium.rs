//! The medium in the virtual CD or DVD drive that a BMC presents to its host.

use std::fmt;
use std::str::FromStr;

/// What a BMC shows of its virtual CD or DVD drive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Medium {
    /// The BMC has no such drive, or does not show it.
    #[default]
    Unknown,
    Ejected,
    /// `None`: the BMC does not tell which image it is.
    Inserted(Option<MediaUrl>),
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("no virtual CD or DVD drive"),
            Self::Ejected => f.write_str("no medium in its virtual drive"),
            Self::Inserted(Some(url)) => write!(f, "{url} in its virtual drive"),
            Self::Inserted(None) => f.write_str("a medium in its virtual drive"),
        }
    }
}

/// What to change in the virtual CD or DVD drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MediumChange {
    /// Whatever else is in the drive is ejected first.
    Insert(MediaUrl),
    Eject,
}

impl MediumChange {
    /// The BMC shows that it is so. An inserted medium whose image the BMC does not tell is shown as none in particular.
    pub fn is_shown(&self, medium: &Medium) -> bool {
        match (self, medium) {
            (Self::Eject, Medium::Ejected) => true,
            (Self::Insert(url), Medium::Inserted(Some(shown))) => url.is_shown_as(shown),
            _ => false,
        }
    }
}

impl fmt::Display for MediumChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Insert(url) => write!(f, "insert {url}"),
            Self::Eject => f.write_str("eject the virtual medium"),
        }
    }
}

/// Where a BMC reads an image from. Neither `Debug` nor `Display` shows the user, the password or the query (which may be a
/// signature): see [`redacted`].
#[derive(Clone, PartialEq, Eq)]
pub struct MediaUrl(String);

impl MediaUrl {
    /// As somebody asks for it; `None`: it is not `scheme://host/path`.
    pub fn parse(url: &str) -> Option<Self> {
        let is_word = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        let parts = Parts::of(url).filter(|parts| !parts.scheme.is_empty() && parts.scheme.chars().all(is_word))?;
        let has_path = !parts.path.trim_matches('/').is_empty();
        let is_clean = !url.chars().any(|c| c.is_whitespace() || c.is_control());
        (parts.has_host() && has_path && is_clean).then(|| Self(url.to_owned()))
    }

    /// As a BMC shows it, in whatever form.
    pub fn shown(image: impl Into<String>) -> Self {
        Self(image.into())
    }

    /// With all that no message shows.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// In lower case; empty where there is none.
    pub fn scheme(&self) -> String {
        Parts::of(&self.0).map(|parts| parts.scheme.to_ascii_lowercase()).unwrap_or_default()
    }

    /// What a BMC shows is this image. BMCs leave out the user, the password and the query, and some show a path of their own,
    /// which ends with the name of the image.
    fn is_shown_as(&self, shown: &Self) -> bool {
        let (Some(asked), Some(there)) = (Parts::of(&self.0), Parts::of(&shown.0)) else {
            return self.file_name() == shown.file_name();
        };
        if there.scheme.is_empty() {
            return self.file_name() == shown.file_name();
        }
        asked.scheme.eq_ignore_ascii_case(there.scheme)
            && asked.host().eq_ignore_ascii_case(there.host())
            && asked.path == there.path
            && (there.query.is_empty() || asked.query == there.query)
    }

    fn file_name(&self) -> &str {
        let path = self.0.split(['?', '#']).next().unwrap_or_default();
        path.rsplit(['/', '\\']).next().unwrap_or_default()
    }
}

impl fmt::Display for MediaUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redacted(&self.0))
    }
}

impl fmt::Debug for MediaUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where BMCs read the installer's ISO: a URL in which each server has its MAC address, with dashes, in the place of `{mac}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallerIso(String);

impl InstallerIso {
    /// Of the server with this MAC address.
    pub fn of(&self, mac: &str) -> MediaUrl {
        MediaUrl(self.0.replace(PLACE, &mac.to_ascii_lowercase().replace(':', "-")))
    }
}

const PLACE: &str = "{mac}";

impl FromStr for InstallerIso {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_url = MediaUrl::parse(text).is_some_and(|url| ["http", "https"].contains(&url.scheme().as_str()));
        let is_of_boot = is_url && text.contains(&format!("/iso/{PLACE}/")) && text.ends_with(".iso");
        let wanted = || "write http://ADDRESS:PORT/iso/{mac}/NAME.iso, with an address of boot".to_owned();
        is_of_boot.then(|| Self(text.to_owned())).ok_or_else(wanted)
    }
}

/// RFC 3986, section 3: `scheme://userinfo@host:port/path?query`, as text.
struct Parts<'a> {
    scheme: &'a str,
    user: Option<&'a str>,
    /// With the port.
    authority: &'a str,
    path: &'a str,
    /// With its question mark, and the fragment.
    query: &'a str,
}

impl<'a> Parts<'a> {
    /// `None`: it has no `//`.
    fn of(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once("//")?;
        let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (path, query) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
        let (user, authority) = match authority.rsplit_once('@') {
            Some((user, authority)) => (Some(user), authority),
            None => (None, authority),
        };
        Some(Self { scheme: scheme.strip_suffix(':').unwrap_or_default(), user, authority, path, query })
    }

    /// Without the port that the scheme has anyway.
    fn host(&self) -> &'a str {
        let usual = match self.scheme.to_ascii_lowercase().as_str() {
            "http" => ":80",
            "https" => ":443",
            _ => "",
        };
        self.authority.strip_suffix(usual).unwrap_or(self.authority)
    }

    fn has_host(&self) -> bool {
        let host = match self.authority.rsplit_once(':') {
            // A port, and not the end of an address of IPv6.
            Some((host, port)) if !port.ends_with(']') => match port.parse::<u16>() {
                Ok(_) => host,
                Err(_) => return false,
            },
            _ => self.authority,
        };
        !host.is_empty() && self.user != Some("")
    }
}

/// Text without the user, the password and the query of any URL in it: BMCs repeat what they were sent.
pub fn redacted(text: &str) -> String {
    let is_end = |c: char| c.is_whitespace() || "\"<>".contains(c);
    text.split_inclusive(is_end).map(|word| word_redacted(word, is_end)).collect()
}

fn word_redacted(word: &str, is_end: impl Fn(char) -> bool) -> String {
    let (url, end) = match word.char_indices().next_back() {
        Some((at, last)) if is_end(last) => word.split_at(at),
        _ => (word, ""),
    };
    let Some(parts) = Parts::of(url) else { return word.to_owned() };
    let before = &url[..url.find("//").map_or(0, |at| at + 2)];
    format!("{before}{}{}{end}", parts.authority, parts.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "https://ann:pa%20ss@images.example:8443/a/debian.iso?sig=c2VjcmV0#x";

    #[test]
    fn neither_the_password_nor_the_query_is_shown() {
        let url = MediaUrl::parse(SECRET).expect("a URL");
        let change = MediumChange::Insert(url.clone());
        let shown = "https://images.example:8443/a/debian.iso";
        assert_eq!(format!("{url}"), shown);
        assert_eq!(format!("{change}"), format!("insert {shown}"));
        let inserted = Medium::Inserted(Some(url.clone()));
        for text in [format!("{url:?}"), format!("{change:?}"), format!("{inserted}"), format!("{inserted:?}")] {
            assert!(text.contains(shown) && !text.contains("pa%20ss") && !text.contains("sig"), "{text}");
        }
        assert_eq!(url.reveal(), SECRET);
        let said = format!("The value \"{SECRET}\" and <{SECRET}>, or '{SECRET}' is no image.\nNext {SECRET}");
        let said = redacted(&said);
        assert!(!said.contains("ann") && !said.contains("sig"), "{said}");
        assert!(
            said.starts_with(&format!("The value \"{shown}\" and <{shown}>, or 'https://images.example")),
            "{said}"
        );
        assert!(said.ends_with(&format!("is no image.\nNext {shown}")), "{said}");
        assert_eq!(redacted("HTTP 400: a // b? No."), "HTTP 400: a // b? No.");
    }

    #[test]
    fn an_url_has_a_scheme_a_host_and_a_path() {
        for good in ["http://10.0.0.1/a.iso", "nfs://nas/export/a.iso", "http://[fd00::1]:8080/a.iso", SECRET] {
            assert!(MediaUrl::parse(good).is_some(), "{good}");
        }
        for bad in ["debian.iso", "//nas/a.iso", "http://", "http:///a.iso", "http://nas/", "http://u:p/w@nas/a.iso"] {
            assert_eq!(MediaUrl::parse(bad), None, "{bad}");
        }
        assert_eq!(MediaUrl::parse("http://n/a b"), None);
    }

    #[test]
    fn a_bmc_may_show_less_of_the_url_than_it_was_told() {
        let asked = MediumChange::Insert(MediaUrl::parse(SECRET).expect("a URL"));
        let is_shown = |image: &str| asked.is_shown(&Medium::Inserted(Some(MediaUrl::shown(image))));
        for same in
            [SECRET, "HTTPS://Images.example:8443/a/debian.iso", "//images.example/share/debian.iso", "debian.iso"]
        {
            assert!(is_shown(same), "{same}");
        }
        for other in [
            "https://images.example:8443/b/debian.iso",
            "http://images.example:8443/a/debian.iso",
            "https://images.example:8443/a/debian.iso?sig=x",
            "alma.iso",
            "",
        ] {
            assert!(!is_shown(other), "{other}");
        }
        let port = MediumChange::Insert(MediaUrl::parse("http://nas:80/a.iso").expect("a URL"));
        assert!(port.is_shown(&Medium::Inserted(Some(MediaUrl::shown("http://nas/a.iso")))));
        assert!(!asked.is_shown(&Medium::Inserted(None)) && !asked.is_shown(&Medium::Ejected));
        assert!(MediumChange::Eject.is_shown(&Medium::Ejected) && !MediumChange::Eject.is_shown(&Medium::Unknown));
    }
}
