//! Where one JSON object ends and the next begins: SPDK writes answers one after the other, in pieces of any size.

/// An answer that is longer than this is not one: SPDK itself sends at most 32 MiB.
const LONGEST: usize = 64 << 20;

/// Collects bytes and hands out whole objects. Each byte is looked at once.
#[derive(Debug, Default)]
pub struct Frames {
    buffer: Vec<u8>,
    /// How far the buffer was looked at.
    seen: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

/// What came is not a stream of JSON objects.
#[derive(Debug, PartialEq, Eq)]
pub struct Garbage;

impl Frames {
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole object, if it has arrived.
    pub fn next(&mut self) -> Result<Option<Vec<u8>>, Garbage> {
        while let Some(byte) = self.buffer.get(self.seen).copied() {
            self.seen += 1;
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.checked_sub(1).ok_or(Garbage)?;
                    if self.depth == 0 {
                        let rest = self.buffer.split_off(self.seen);
                        self.seen = 0;
                        return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
                    }
                }
                b'"' if self.depth > 0 => self.in_string = true,
                byte if self.depth == 0 && !byte.is_ascii_whitespace() => return Err(Garbage),
                _ => {}
            }
        }
        if self.buffer.len() > LONGEST { Err(Garbage) } else { Ok(None) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(frames: &mut Frames) -> Vec<String> {
        let mut whole = Vec::new();
        while let Some(frame) = frames.next().expect("objects") {
            whole.push(String::from_utf8(frame).expect("text").trim().to_owned());
        }
        whole
    }

    #[test]
    fn objects_are_found_however_they_are_cut() {
        let stream = "{\"a\":\"}{\\\"\"}\n{\"b\":[{},[1,2]]}{\"c\":\"\\\\\"}";
        let expected = ["{\"a\":\"}{\\\"\"}", "{\"b\":[{},[1,2]]}", "{\"c\":\"\\\\\"}"];
        for size in 1..=stream.len() {
            let mut frames = Frames::default();
            let mut whole = Vec::new();
            for piece in stream.as_bytes().chunks(size) {
                frames.push(piece);
                whole.extend(all(&mut frames));
            }
            assert_eq!(whole, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn a_part_waits_for_its_rest() {
        let mut frames = Frames::default();
        frames.push(b" {\"a\":");
        assert_eq!(frames.next(), Ok(None));
        frames.push(b"1}{");
        assert_eq!(all(&mut frames), ["{\"a\":1}"]);
        frames.push(b"}");
        assert_eq!(all(&mut frames), ["{}"]);
    }

    #[test]
    fn what_is_no_object_is_garbage() {
        for garbage in ["HTTP/1.1 400", "}", "\"text\"", "1"] {
            let mut frames = Frames::default();
            frames.push(garbage.as_bytes());
            assert_eq!(frames.next(), Err(Garbage), "{garbage}");
        }
    }
}
