//! The place for kernel arguments in an image that firmware boots as a whole (a unified kernel image, an ISO): bytes that begin with a
//! mark and are lower-case letters and digits. Who serves the image puts the arguments there, with blanks behind them. Mark and length
//! are those of Tinkerbell's ISO images.

use memchr::memmem;
use std::io::{self, Read};
use std::sync::Arc;

/// Bytes.
pub const LENGTH: usize = 1024;

pub const MARK: &str = "464vn90e7rbj08xbwdjejmdf4it17c5zfzjyfhthbh19eij201";

/// A place that nothing was put into.
pub fn empty() -> String {
    format!("{MARK:x<LENGTH$}")
}

/// Read at once of a file in which places are looked for.
const PIECE: usize = 4 << 20;

/// Where the places of an image begin.
pub type Places = Arc<[u64]>;

/// Finds all of them.
pub fn find(mut image: impl Read) -> io::Result<Places> {
    let (mut places, mut window, mut begin) = (Vec::new(), Vec::new(), 0_u64);
    loop {
        let read = image.by_ref().take(PIECE as u64).read_to_end(&mut window)?;
        places.extend(self::places(&window).map(|at| begin + at as u64));
        if read == 0 {
            return Ok(places.into());
        }
        // One that the piece cuts is found with the next; one that is whole is not found twice.
        let kept = window.len().min(LENGTH - 1);
        begin += (window.len() - kept) as u64;
        window.drain(..window.len() - kept);
    }
}

/// Those that are whole in a part of an image.
pub fn places(part: &[u8]) -> impl Iterator<Item = usize> {
    let is_place = |place: &[u8]| place.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    memmem::find_iter(part, MARK.as_bytes()).filter(move |at| part.get(*at..at + LENGTH).is_some_and(is_place))
}

/// What a place is filled with. `field`: where whoever reads the error can shorten it.
pub fn filling(arguments: &str, field: &str) -> Result<Arc<[u8]>, String> {
    let length = arguments.len();
    if length > LENGTH {
        return Err(format!(
            "the kernel's arguments have {length} bytes, the image has room for {LENGTH}: shorten {field}"
        ));
    }
    let mut filled = vec![b' '; LENGTH];
    filled[..length].copy_from_slice(arguments.as_bytes());
    Ok(filled.into())
}

/// Fills what of the places is in a part of the image that begins at `first`.
pub fn fill(places: &[u64], filling: &[u8], first: u64, part: &mut [u8]) {
    let end = first + part.len() as u64;
    for place in places {
        let (from, to) = ((*place).max(first), (place + filling.len() as u64).min(end));
        if from < to {
            let at = |position: u64, base: u64| usize::try_from(position - base).unwrap_or(usize::MAX);
            part[at(from, first)..at(to, first)].copy_from_slice(&filling[at(from, *place)..at(to, *place)]);
        }
    }
}

/// Whether a part of the image has something of a place.
pub fn touches(places: &[u64], first: u64, length: u64) -> bool {
    length > 0 && places.iter().any(|place| *place < first + length && first < place + LENGTH as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_place_is_as_long_as_a_filled_one() {
        let empty = empty();
        assert_eq!(empty.len(), LENGTH);
        assert!(empty.starts_with(MARK) && empty.ends_with("xxx"));
    }

    #[test]
    fn places_are_found_wherever_they_are() {
        // At the beginning, over the border of two pieces, and at the end; a mark without a whole place behind it is none.
        let mut image = [empty().as_bytes(), &vec![0; PIECE - LENGTH - 3]].concat();
        image.extend(empty().bytes());
        image.extend([&[0; 100][..], MARK.as_bytes(), &[0; 2000]].concat());
        image.extend(empty().bytes());
        let last = image.len() - LENGTH;
        assert_eq!(*find(&image[..]).expect("read"), [0, (PIECE - 3) as u64, last as u64]);
        assert_eq!(*find(&image[..image.len() - 1]).expect("read"), [0, (PIECE - 3) as u64]);
    }

    #[test]
    fn arguments_that_have_no_room_are_refused() {
        assert_eq!(filling("a=b", "x").expect("filled")[..5], *b"a=b  ");
        assert_eq!(filling(&"x".repeat(LENGTH), "x").expect("filled").len(), LENGTH);
        assert!(filling(&"x".repeat(LENGTH + 1), "a.field").expect_err("too long").contains("shorten a.field"));
    }

    proptest! {
        #[test]
        fn parts_are_parts_of_the_filled_whole(
            places in proptest::collection::vec(0u64..5000, 0..3), first in 0usize..6000, length in 0usize..3000
        ) {
            let filling: Vec<u8> = (0..LENGTH).map(|n| u8::try_from(n % 250).expect("small") + 1).collect();
            let mut whole = vec![0; 9000];
            fill(&places, &filling, 0, &mut whole);
            let mut part = vec![0; length];
            fill(&places, &filling, first as u64, &mut part);
            prop_assert_eq!(&part[..], &whole[first..first + length]);
            let touched = touches(&places, first as u64, length as u64);
            prop_assert_eq!(touched, part.iter().any(|byte| *byte != 0));
        }
    }
}
