//! Lists in pages.

use crate::pool::Handle;
use tonic::Status;

/// One page of an ordered list, and the token of the next. A token is the last handle of its page: what is created or
/// deleted between two pages makes no entry come twice.
pub(super) fn page<T>(
    mut all: Vec<T>,
    handle: impl Fn(&T) -> Handle,
    prefix: &str,
    token: &str,
    max_entries: i32,
) -> Result<(Vec<T>, String), Status> {
    let max = usize::try_from(max_entries).map_err(|_| Status::invalid_argument("max_entries is negative"))?;
    if !token.is_empty() {
        let after = Handle::parse(token).filter(|_| token.starts_with(prefix));
        let after = after.ok_or_else(|| Status::aborted(format!("starting_token {token} is not one of ours")))?;
        all.retain(|item| handle(item) > after);
    }
    if max == 0 || all.len() <= max {
        return Ok((all, String::new()));
    }
    all.truncate(max);
    let next = all.last().map(|item| handle(item).to_string()).unwrap_or_default();
    Ok((all, next))
}
