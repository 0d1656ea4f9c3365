//! The place for kernel arguments in an image that firmware boots as a whole (a unified kernel image, an ISO): bytes that begin with a
//! mark and are lower-case letters and digits. Who serves the image puts the arguments there, with blanks behind them. Mark and length
//! are those of Tinkerbell's ISO images.

/// Bytes.
pub const LENGTH: usize = 1024;

pub const MARK: &str = "464vn90e7rbj08xbwdjejmdf4it17c5zfzjyfhthbh19eij201";

/// A place that nothing was put into.
pub fn empty() -> String {
    format!("{MARK:x<LENGTH$}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_empty_place_is_as_long_as_a_filled_one() {
        let empty = super::empty();
        assert_eq!(empty.len(), super::LENGTH);
        assert!(empty.starts_with(super::MARK) && empty.ends_with("xxx"));
    }
}
