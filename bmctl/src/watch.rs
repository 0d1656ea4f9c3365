//! The watch behind `--wait`: of one object, for as long as the user waits.

use crate::cluster::READ_TIMEOUT;
use kube::runtime::watcher::{Config, Error};

/// A quiet watch is ended by the server before the client takes its silence for that of a dead server.
pub fn of(name: &str) -> Config {
    let quiet = READ_TIMEOUT.as_secs().saturating_sub(15);
    Config::default().fields(&format!("metadata.name={name}")).timeout(u32::try_from(quiet).unwrap_or(u32::MAX))
}

/// What a user is told of an error. A watch that breaks is taken up again, and is no news; only a request that fails is.
pub fn trouble(error: &Error) -> Option<String> {
    match error {
        Error::WatchFailed(_) => None,
        // The version is too old: all is listed anew.
        Error::WatchError(status) if status.code == 410 => None,
        Error::WatchError(status) => Some(format!("the API server refuses the watch: {}", status.message)),
        Error::InitialListFailed(kube::Error::Api(status)) | Error::WatchStartFailed(kube::Error::Api(status)) => {
            Some(format!("the API server refuses the watch: {}", status.message))
        }
        Error::InitialListFailed(_) | Error::WatchStartFailed(_) | Error::NoResourceVersion => {
            Some(format!("the API server does not answer: {error}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;
    use std::io;

    fn status(code: u16) -> Box<Status> {
        Status { code, ..Status::failure("because", "Forbidden") }.boxed()
    }

    fn broken() -> kube::Error {
        kube::Error::ReadEvents(io::ErrorKind::TimedOut.into())
    }

    #[test]
    fn a_watch_that_ends_is_no_news_and_a_server_that_does_not_answer_is() {
        assert_eq!(trouble(&Error::WatchFailed(broken())), None);
        assert_eq!(trouble(&Error::WatchError(status(410))), None);
        for error in [Error::WatchStartFailed(broken()), Error::InitialListFailed(broken())] {
            assert!(
                trouble(&error).is_some_and(|told| told.starts_with("the API server does not answer: ")),
                "{error}"
            );
        }
        let refused = Some("the API server refuses the watch: because".to_owned());
        assert_eq!(trouble(&Error::WatchStartFailed(kube::Error::Api(status(403)))), refused);
        assert_eq!(trouble(&Error::WatchError(status(500))), refused);
    }

    #[test]
    fn the_server_ends_a_quiet_watch_first() {
        let quiet = of("bm-01").timeout.map(u64::from);
        assert!(quiet.is_some_and(|quiet| (30..READ_TIMEOUT.as_secs()).contains(&quiet)), "{quiet:?}");
    }
}
