//! What of a file is asked for (RFC 9110, 13.1.5 and 14).

use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_RANGE, RANGE};
use http::{HeaderMap, StatusCode};

/// What of a file is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    /// First byte and length.
    Some(u64, u64),
    NotThere,
}

/// One range is served; several, or one that cannot be read, are the whole file (RFC 9110, 14.2).
pub(super) fn part(headers: &HeaderMap, etag: &str, length: u64) -> Part {
    let text = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    if text(IF_RANGE).is_some_and(|known| known != etag) {
        return Part::Whole;
    }
    let Some((first, last)) = text(RANGE).and_then(|range| range.strip_prefix("bytes=")?.split_once('-')) else {
        return Part::Whole;
    };
    let number = |text: &str| text.parse::<u64>().ok();
    match (first.is_empty(), number(first), last.is_empty(), number(last)) {
        (true, _, _, Some(0)) => Part::NotThere,
        (true, _, _, Some(_)) if length == 0 => Part::NotThere,
        (true, _, _, Some(suffix)) => Part::Some(length.saturating_sub(suffix), suffix.min(length)),
        (_, Some(first), true, _) if first < length => Part::Some(first, length - first),
        (_, Some(first), _, Some(last)) if last < first => Part::Whole,
        (_, Some(first), _, Some(last)) if first < length => Part::Some(first, last.min(length - 1) - first + 1),
        (_, Some(_), true, _) | (_, Some(_), _, Some(_)) => Part::NotThere,
        _ => Part::Whole,
    }
}

/// Status, first byte, length, and the header of the answer.
pub(super) fn heads(part: Part, etag: &str, length: u64) -> (StatusCode, u64, u64, Vec<(http::HeaderName, String)>) {
    let mut headers = vec![
        (ETAG, etag.to_owned()),
        (ACCEPT_RANGES, "bytes".to_owned()),
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
    ];
    let (status, first, wanted) = match part {
        Part::Whole => (StatusCode::OK, 0, length),
        Part::Some(first, wanted) => {
            headers.push((CONTENT_RANGE, format!("bytes {first}-{}/{length}", first + wanted - 1)));
            (StatusCode::PARTIAL_CONTENT, first, wanted)
        }
        Part::NotThere => {
            headers.push((CONTENT_RANGE, format!("bytes */{length}")));
            (StatusCode::RANGE_NOT_SATISFIABLE, 0, 0)
        }
    };
    headers.push((CONTENT_LENGTH, wanted.to_string()));
    (status, first, wanted, headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let of = |range: &str, if_range: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, range.parse().expect("a value"));
            if let Some(etag) = if_range {
                headers.insert(IF_RANGE, etag.parse().expect("a value"));
            }
            part(&headers, "\"e\"", 10)
        };
        for (range, wanted) in [
            ("bytes=0-0", Part::Some(0, 1)),
            ("bytes=2-", Part::Some(2, 8)),
            ("bytes=2-99", Part::Some(2, 8)),
            ("bytes=-3", Part::Some(7, 3)),
            ("bytes=-30", Part::Some(0, 10)),
            ("bytes=-0", Part::NotThere),
            ("bytes=10-", Part::NotThere),
            ("bytes=10-12", Part::NotThere),
            ("bytes=5-2", Part::Whole),
            ("bytes=0-1,3-4", Part::Whole),
            ("lines=0-1", Part::Whole),
            ("bytes=a-b", Part::Whole),
        ] {
            assert_eq!(of(range, None), wanted, "{range}");
        }
        assert_eq!(of("bytes=0-0", Some("\"e\"")), Part::Some(0, 1));
        assert_eq!(of("bytes=0-0", Some("\"f\"")), Part::Whole);
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config { cases: 3000, failure_persistence: None, ..Default::default() })]

        /// What is served is there, and is what the header says.
        #[test]
        fn any_range_is_within_the_file(range in "bytes=[0-9]{0,20}-?[0-9]{0,20}|[ -~]{0,20}", length in 0u64..50) {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, range.parse().expect("a value"));
            let (status, first, wanted, _) = heads(part(&headers, "e", length), "e", length);
            proptest::prop_assert!(first + wanted <= length);
            let whole = status == StatusCode::OK;
            proptest::prop_assert!(!whole || (first, wanted) == (0, length));
            proptest::prop_assert!(status != StatusCode::PARTIAL_CONTENT || wanted > 0);
        }
    }
}
