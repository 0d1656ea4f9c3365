//! `oci2disk`: an image of a disk from a registry of containers, where `oras push` has put it. Upstream's `IMG_URL` (a reference:
//! `registry.example:5000/path/name:tag`, or with a digest), `DEST_DISK`, `COMPRESSED`, `REGISTRY_USERNAME`, `REGISTRY_PASSWORD` and
//! `SKIP_VERIFY`; `CA_BUNDLE` is ours, as in `image2disk`, and so is `http://` before the reference, of a registry without TLS.
//!
//! Which layer is the disk is decided as upstream does it; where upstream would write several one after another, or none and succeed, it is
//! a failure here. The layer's digest is the checksum. What it is packed with is told by its first bytes, not by the end of the tag.

use super::image2disk::{self, CA_BUNDLE, DISK, Job, authorities, packing};
use super::{optional, proxies, required, truth};
use crate::agent::Action;
use crate::disks::Disks;
use crate::lines::Lines;
use imaging::registry::{self, Access, Login, Reference};
use imaging::{Authorities, Source};
use std::time::Duration;
use tokio::time::timeout_at;
use version::VERSION;

const USERNAME: &str = "REGISTRY_USERNAME";
const PASSWORD: &str = "REGISTRY_PASSWORD";
const SKIP_VERIFY: &str = "SKIP_VERIFY";
/// Between lines of progress.
const TELL_EVERY: Duration = Duration::from_secs(3);

/// What is asked for, and how.
fn read(action: &Action) -> Result<(Reference, Source), String> {
    let image = required(action, "IMG_URL", "the image's reference, as registry.example:5000/path/name:tag")?;
    let reference: Reference = image.parse().map_err(|error| format!("IMG_URL: {error}"))?;
    if optional(action, "CHECKSUM").is_some() {
        return Err("CHECKSUM is image2disk's: oci2disk verifies the digests of its registry: leave it out, and pin the image by its \
                    digest (IMG_URL with @sha256:…)"
            .to_owned());
    }
    let login = login(action)?;
    if login.is_some() && reference.is_plain() {
        return Err(format!(
            "IMG_URL is http://, and {PASSWORD} would be read by everybody on the way: write the reference without http://"
        ));
    }
    let bundle = optional(action, CA_BUNDLE).map(authorities).transpose()?;
    let authorities = match (truth(action, SKIP_VERIFY)?.unwrap_or(false), bundle) {
        (true, Some(_)) => {
            return Err(format!("{SKIP_VERIFY} is true, and {CA_BUNDLE} says who vouches: leave one out"));
        }
        (true, None) => Authorities::NotAsked,
        (false, bundle) => bundle.into(),
    };
    let access = Access::new(&reference, login, "REGISTRY_USERNAME and REGISTRY_PASSWORD");
    let access = access.map_err(|error| format!("IMG_URL: {error}"))?;
    let source = Source {
        url: String::new(),
        checksum: None,
        checksum_field: "the layer's digest",
        packing: packing(action)?,
        user_agent: format!("metalplane-installer/{VERSION}"),
        authorities,
        authorities_field: CA_BUNDLE,
        access: Some(access),
        proxies: proxies(action)?,
    };
    Ok((reference, source))
}

fn login(action: &Action) -> Result<Option<Login>, String> {
    match (optional(action, USERNAME), optional(action, PASSWORD)) {
        (None, None) => Ok(None),
        (Some(user), Some(password)) => Ok(Some(Login { user: user.to_owned(), password: password.to_owned() })),
        (Some(_), None) => Err(format!("{USERNAME} is set and {PASSWORD} is not: write both or neither")),
        (None, Some(_)) => Err(format!("{PASSWORD} is set and {USERNAME} is not: write both or neither")),
    }
}

pub(super) async fn run(disks: &Disks, action: &Action, lines: &Lines) -> Result<(), String> {
    let (reference, source) = read(action)?;
    let disk = disks.find(required(action, "DEST_DISK", DISK)?)?;
    if source.authorities == Authorities::NotAsked {
        lines.say(&format!("{SKIP_VERIFY}: nobody vouches for the registry"));
    }
    let found = timeout_at(action.deadline, registry::find(&reference, source)).await;
    let found =
        found.map_err(|_| format!("{reference}: the action's time is over, and its registry has not answered"))?;
    let found = found.map_err(|error| error.message)?;
    lines.say(&format!("{reference} is {}: {:?}, {} bytes", found.digest, found.title, found.bytes));
    for other in &found.others {
        lines.say(&format!("{reference}: not the disk, and not written: {other}"));
    }
    let job = Job { source: found.source, retry: None, tell_every: TELL_EVERY };
    image2disk::write(&job, (disks, &disk), action.deadline, lines).await
}

#[cfg(test)]
mod tests {
    use super::super::tests::action;
    use super::*;

    const IMAGE: (&str, &str) = ("IMG_URL", "r.example:5000/disks/debian:12");

    #[test]
    fn what_contradicts_itself_is_refused_before_anybody_is_asked() {
        let plain = ("IMG_URL", "http://r.example:5000/disks/debian:12");
        let bundle = rcgen::generate_simple_self_signed(["r".to_owned()]).expect("a certificate").cert.pem();
        for (environment, said) in [
            (&[][..], "IMG_URL is missing"),
            (&[("IMG_URL", "https://r.example/disk.raw")], "neither a tag nor a digest"),
            (&[IMAGE, (USERNAME, "ann")], "REGISTRY_PASSWORD is not: write both"),
            (&[IMAGE, (PASSWORD, "secret")], "REGISTRY_USERNAME is not: write both"),
            (&[plain, (USERNAME, "ann"), (PASSWORD, "secret")], "read by everybody"),
            (&[IMAGE, (SKIP_VERIFY, "yes")], "SKIP_VERIFY is \"yes\": write true or false"),
            (&[IMAGE, (SKIP_VERIFY, "true"), (CA_BUNDLE, &bundle)], "leave one out"),
            (&[IMAGE, ("COMPRESSED", "gz")], "COMPRESSED is \"gz\""),
            (&[IMAGE, ("CHECKSUM", "sha256:1")], "CHECKSUM is image2disk's"),
        ] {
            let error = read(&action("oci2disk", environment)).map(|_| ()).expect_err(said);
            assert!(error.contains(said) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn nobody_is_asked_for_the_registrys_authority_where_the_template_says_so() {
        let of = |environment: &[(&str, &str)]| read(&action("oci2disk", environment)).expect("read").1.authorities;
        assert_eq!(of(&[IMAGE]), Authorities::Public);
        assert_eq!(of(&[IMAGE, (SKIP_VERIFY, "false")]), Authorities::Public);
        assert_eq!(of(&[IMAGE, (SKIP_VERIFY, "true")]), Authorities::NotAsked);
    }
}
