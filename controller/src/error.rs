//! A call to the API server, and what can go wrong with it.

pub use executor::{Error, found};
use std::future::Future;
use std::time::Duration;

/// After this the API server counts as unreachable.
const LIMIT: Duration = Duration::from_secs(10);

/// One call to the API server, bounded in time. `what` names the object and the step.
pub async fn call<T>(what: &str, call: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    let what = what.to_owned();
    match tokio::time::timeout(LIMIT, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(kube::Error::Api(status))) => {
            let message = status.message.clone();
            Err(match status.code {
                404 => Error::NotFound { what },
                409 if status.reason == "AlreadyExists" => Error::AlreadyExists { what, message },
                409 => Error::Conflict { what, message },
                400 | 403 | 405 | 422 => Error::Refused { what, message },
                _ => Error::Unavailable { what, message },
            })
        }
        Ok(Err(error)) => Err(Error::Unavailable { what, message: causes(&error) }),
        Err(_) => {
            let message = format!("the API server did not answer within {} s", LIMIT.as_secs());
            Err(Error::Unavailable { what, message })
        }
    }
}

fn causes(error: &kube::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
