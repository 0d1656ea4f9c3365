//! The clock of a server whose battery is empty: it starts in 1970 or in the year of its board, and every certificate of an https server is
//! "not valid yet" then. The time that the server of the actions tells with each answer (the header `Date` of HTTP) is taken in its
//! place, once, by process 1 of the installer's image alone: whoever else uses this library has a clock that is not ours to set. A clock
//! that may be right is left alone: this is no time service, and an answer is as old as its way was long.

use crate::console;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_settime};
use std::sync::Once;
use std::time::{Duration, SystemTime};
use tonic::metadata::MetadataMap;

/// No release is older: 2026-01-01. It is written here and not taken from the build, which is to give the same bytes on any day.
const EARLIEST: Duration = Duration::from_secs(1_767_225_600);
const HEADER: &str = "date";

/// With what a server has answered.
pub(crate) fn heard(answer: &MetadataMap) {
    static SET: Once = Once::new();
    if std::process::id() != 1 {
        return;
    }
    let told = answer.get(HEADER).and_then(|told| told.to_str().ok());
    let before = SystemTime::now();
    let Some(time) = told.and_then(|told| correction(before, told)) else { return };
    SET.call_once(|| {
        let text = httpdate::fmt_http_date;
        match set(time) {
            Ok(()) => console::say(format_args!(
                "the clock was at {}, and is set by the server to {}",
                text(before),
                text(time)
            )),
            Err(error) => console::say(format_args!("the clock is at {}, and cannot be set: {error}", text(before))),
        }
    });
}

/// What a clock at `now` is to be set to by an answer of this `Date`; `None`: it stays.
pub fn correction(now: SystemTime, told: &str) -> Option<SystemTime> {
    let is_wrong = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() < EARLIEST;
    let told = httpdate::parse_http_date(told).ok()?;
    (is_wrong(now) && !is_wrong(told)).then_some(told)
}

fn set(time: SystemTime) -> nix::Result<()> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    clock_settime(ClockId::CLOCK_REALTIME, TimeSpec::from_duration(since))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_from_before_every_release_is_set_and_no_other() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let told = "Sat, 28 Nov 2026 21:06:40 GMT";
        let (told_at, earliest) = (at(1_795_900_000), EARLIEST.as_secs());
        for (clock, date, set) in [
            (0, told, Some(told_at)),
            (1_420_070_400, told, Some(told_at)),
            (earliest - 1, told, Some(told_at)),
            (earliest, told, None),
            (4_000_000_000, told, None),
            (0, "Thu, 01 Jan 1970 00:00:09 GMT", None),
            (0, "soon", None),
            (0, "", None),
        ] {
            assert_eq!(correction(at(clock), date), set, "{clock} {date}");
        }
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(9);
        assert_eq!(correction(before, told), Some(told_at));
    }
}
