//! What a server is told about itself, known by the address that it asks from: as weak as upstream's, and told to the provisioning network
//! alone. `/2009-04-04/…` and `/latest/…` as EC2, `/nocloud/…` for `seedfrom`, `/metadata` for the action `rootio`.

use super::Reply;
use crate::seeds::Seeds;
use http::{HeaderMap, StatusCode};
use planner::metadata::{self, hardware};
use planner::netboot::Directory;
use std::net::IpAddr;

/// `None`: the path is another service's.
pub(super) async fn reply(
    (directory, seeds): (&Directory, &Seeds),
    path: &str,
    headers: &HeaderMap,
    from: IpAddr,
) -> Option<Reply> {
    let is_layout = path.trim_end_matches('/') == "/metadata";
    if !is_layout && !metadata::is_path(path) {
        return None;
    }
    if headers.contains_key("x-forwarded-for") {
        let why = "a request that a proxy has passed on is not answered\n";
        return Some(Reply::Refused(StatusCode::FORBIDDEN, why.to_owned()));
    }
    let missing = |why: String| Reply::Refused(StatusCode::NOT_FOUND, format!("{why}\n"));
    let subject = match directory.by_address(from) {
        Ok(subject) => subject,
        Err(why) => return Some(missing(why.to_string())),
    };
    if is_layout {
        return Some(match hardware::layout(&subject) {
            Ok(text) => Reply::Told(text.into_bytes()),
            Err(why) => missing(why.to_string()),
        });
    }
    // An answer without it would be taken for all that there is, once and for good.
    let files = match seeds.of(subject.hardware).await {
        Ok(files) => files,
        Err(error) => {
            tracing::warn!(%from, "metadata: {error:#}");
            let why = "what this server is told cannot be read now; ask again\n";
            return Some(Reply::Refused(StatusCode::SERVICE_UNAVAILABLE, why.to_owned()));
        }
    };
    let told = hardware::instance(&subject, files.as_deref())
        .map(|instance| metadata::answer(&instance, subject.mac, path).map(|content| content.into_owned()));
    Some(match told {
        Ok(Some(content)) => Reply::Told(content),
        Ok(None) => missing("nothing is known of that".to_owned()),
        Err(why) => missing(why.to_string()),
    })
}
