//! Whether anybody is there. The target says "Input/output error" of a storage node that refuses and of one that is away.

use ports::{ErrorClass, PortError};
use std::time::Duration;
use tokio::net::TcpStream;

const LIMIT: Duration = Duration::from_secs(2);

/// `places`: `host:port`, IPv6 addresses in brackets. `there`: the class if somebody listens on one of them.
pub(super) async fn explain(places: &[String], there: ErrorClass, cause: &str) -> PortError {
    let at = places.join(", ");
    for place in places {
        if matches!(tokio::time::timeout(LIMIT, TcpStream::connect(place)).await, Ok(Ok(_))) {
            return PortError::new(there, format!("{at} answers, and does not give it: {cause}"));
        }
    }
    PortError::new(ErrorClass::Unreachable, format!("nobody answers at {at}: {cause}"))
}
