//! How large a volume becomes. Pure.

/// Sizes are multiples of this, or of what the storage has larger.
pub(super) const STEP: u64 = 1 << 20;
/// When nobody says.
const DEFAULT: u64 = 1 << 30;

/// What a caller accepts, in bytes; `None` where it does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Range {
    pub required: Option<u64>,
    pub limit: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    #[error("the limit of {limit} bytes is below the {required} bytes required")]
    Contradiction { required: u64, limit: u64 },
    #[error("{required} bytes required is less than the {source_bytes} bytes of the source: ask for at least as much")]
    BelowSource { required: u64, source_bytes: u64 },
    #[error("sizes are multiples of {} MiB: the next one is {size} bytes, above the limit of {limit}", .step >> 20)]
    AboveLimit { size: u64, limit: u64, step: u64 },
    #[error("{0} bytes is more than a file can hold")]
    Absurd(u64),
    #[error("{size} bytes is larger than the whole pool {pool} ({total} bytes): it could never be filled")]
    AbovePool { size: u64, pool: String, total: u64 },
}

impl Range {
    /// The size of a new volume; with a source at least the source's.
    pub fn choose(&self, source_bytes: Option<u64>) -> Result<u64, SizeError> {
        self.choose_by(STEP, source_bytes)
    }

    /// A multiple of `step`.
    pub(super) fn choose_by(&self, step: u64, source_bytes: Option<u64>) -> Result<u64, SizeError> {
        if let (Some(required), Some(limit)) = (self.required, self.limit)
            && limit < required
        {
            return Err(SizeError::Contradiction { required, limit });
        }
        if let (Some(required), Some(source_bytes)) = (self.required, source_bytes)
            && required < source_bytes
        {
            return Err(SizeError::BelowSource { required, source_bytes });
        }
        let size = match (self.required, source_bytes, self.limit) {
            (Some(required), _, _) => round_up(required, step)?,
            (None, Some(source_bytes), _) => round_up(source_bytes, step)?,
            (None, None, Some(limit)) => DEFAULT.min(limit / step * step),
            (None, None, None) => round_up(DEFAULT, step)?,
        };
        // A limit below one step leaves nothing.
        let size = size.max(step);
        match self.limit {
            Some(limit) if size > limit => Err(SizeError::AboveLimit { size, limit, step }),
            _ => Ok(size),
        }
    }

    /// Whether a volume that exists already is what this range asks for.
    pub fn admits(&self, size: u64) -> bool {
        self.required.is_none_or(|required| size >= required) && self.limit.is_none_or(|limit| size <= limit)
    }
}

fn round_up(bytes: u64, step: u64) -> Result<u64, SizeError> {
    match bytes.checked_next_multiple_of(step) {
        Some(size) if i64::try_from(size).is_ok() => Ok(size),
        _ => Err(SizeError::Absurd(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::{DEFAULT, Range, STEP, SizeError};

    fn range(required: impl Into<Option<u64>>, limit: impl Into<Option<u64>>) -> Range {
        Range { required: required.into(), limit: limit.into() }
    }

    #[test]
    fn sizes_are_rounded_up_to_a_mebibyte() {
        assert_eq!(range(1, None).choose(None), Ok(STEP));
        assert_eq!(range(STEP, STEP).choose(None), Ok(STEP));
        assert_eq!(range(STEP + 1, None).choose(None), Ok(2 * STEP));
        assert_eq!(range(None, None).choose(None), Ok(DEFAULT));
        assert_eq!(range(None, 10 * STEP + 5).choose(None), Ok(10 * STEP));
        assert_eq!(range(1, None).choose_by(4 * STEP, None), Ok(4 * STEP));
        assert_eq!(range(None, 10 * STEP).choose_by(4 * STEP, None), Ok(8 * STEP));
    }

    #[test]
    fn what_cannot_be_met_is_refused() {
        let above = SizeError::AboveLimit { size: 2 * STEP, limit: STEP + 2, step: STEP };
        assert_eq!(range(STEP + 1, STEP + 2).choose(None), Err(above));
        assert_eq!(range(None, 5).choose(None), Err(SizeError::AboveLimit { size: STEP, limit: 5, step: STEP }));
        assert!(matches!(range(5, 4).choose(None), Err(SizeError::Contradiction { .. })));
        assert!(matches!(range(u64::MAX, None).choose(None), Err(SizeError::Absurd(_))));
        assert!(matches!(range(i64::MAX as u64, None).choose(None), Err(SizeError::Absurd(_))));
    }

    #[test]
    fn a_copy_is_never_smaller_than_its_source() {
        assert_eq!(range(None, None).choose(Some(7 * STEP)), Ok(7 * STEP));
        assert_eq!(range(9 * STEP, None).choose(Some(7 * STEP)), Ok(9 * STEP));
        assert!(matches!(range(STEP, None).choose(Some(7 * STEP)), Err(SizeError::BelowSource { .. })));
        assert!(matches!(range(None, STEP).choose(Some(7 * STEP)), Err(SizeError::AboveLimit { .. })));
    }

    #[test]
    fn an_existing_size_is_admitted_within_both_bounds() {
        assert!(range(None, None).admits(STEP));
        assert!(range(STEP, STEP).admits(STEP));
        assert!(!range(STEP + 1, None).admits(STEP));
        assert!(!range(None, STEP - 1).admits(STEP));
    }
}
