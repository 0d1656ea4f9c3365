//! Messages on the stream: RFC 7047 section 4 (JSON-RPC 1.0 over a byte stream, section 4.1 for each method).
//!
//! Messages follow each other without a delimiter or a length, so [`Scanner`] finds the end of each by its braces.

use serde_json::{Value as Json, json};

/// A message longer than this is taken for garbage: the north-bound database of a large OVN is about 100 MB.
const LONGEST_MESSAGE: usize = 512 << 20;

/// Room for at least as much at each read.
const READ_SIZE: usize = 16 << 10;

#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    Request { id: Json, method: String, params: Json },
    Notification { method: String, params: Json },
    Response { id: Json, result: Result<Json, Json> },
}

impl Message {
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Request { id, method, params } => json!({"id": id, "method": method, "params": params}),
            Self::Notification { method, params } => json!({"id": null, "method": method, "params": params}),
            Self::Response { id, result: Ok(result) } => json!({"id": id, "result": result, "error": null}),
            Self::Response { id, result: Err(error) } => json!({"id": id, "result": null, "error": error}),
        }
        .to_string()
        .into_bytes()
    }

    fn from_json(json: Json) -> Result<Self, String> {
        let Json::Object(mut members) = json else {
            return Err("a message that is not an object".to_owned());
        };
        let id = members.remove("id").unwrap_or(Json::Null);
        if let Some(method) = members.remove("method") {
            let Json::String(method) = method else {
                return Err(format!("a method that is not a string: {method}"));
            };
            let params = members.remove("params").unwrap_or_else(|| json!([]));
            return Ok(match id {
                Json::Null => Self::Notification { method, params },
                id => Self::Request { id, method, params },
            });
        }
        let result = match members.remove("error").unwrap_or(Json::Null) {
            Json::Null => Ok(members.remove("result").ok_or("a message that is neither request nor response")?),
            error => Err(error),
        };
        Ok(Self::Response { id, result })
    }
}

/// Cuts a stream of JSON objects into messages, whatever the pieces in which the bytes arrive.
#[derive(Debug, Default)]
pub struct Scanner {
    buffer: Vec<u8>,
    /// Bytes of `buffer` looked at already.
    looked_at: usize,
    depth: u32,
    in_string: bool,
    escaped: bool,
}

impl Scanner {
    /// Where the next bytes of the stream are to be appended.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        self.buffer.reserve(READ_SIZE);
        &mut self.buffer
    }

    /// The next whole message, `None` until more bytes arrive. After an error the stream is lost: close it.
    pub fn next_message(&mut self) -> Result<Option<Message>, String> {
        let Some(end) = self.find_end()? else {
            return Ok(None);
        };
        let json = serde_json::from_slice(&self.buffer[..end]).map_err(|error| format!("no JSON: {error}"))?;
        self.buffer.drain(..end);
        self.looked_at = 0;
        Message::from_json(json).map(Some)
    }

    fn find_end(&mut self) -> Result<Option<usize>, String> {
        while let Some(&byte) = self.buffer.get(self.looked_at) {
            self.looked_at += 1;
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
                b'"' if self.depth > 0 => self.in_string = true,
                b'}' | b']' if self.depth > 0 => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Ok(Some(self.looked_at));
                    }
                }
                _ if self.depth > 0 || byte.is_ascii_whitespace() => {}
                _ => return Err(format!("byte 0x{byte:02x} between messages")),
            }
        }
        if self.buffer.len() > LONGEST_MESSAGE {
            return Err(format!("a message of more than {LONGEST_MESSAGE} bytes"));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scan(pieces: &[&[u8]]) -> Result<Vec<Message>, String> {
        let mut scanner = Scanner::default();
        let mut messages = Vec::new();
        for piece in pieces {
            scanner.buffer().extend_from_slice(piece);
            while let Some(message) = scanner.next_message()? {
                messages.push(message);
            }
        }
        Ok(messages)
    }

    #[test]
    fn messages_need_no_delimiter() {
        let stream = br#"{"id":1,"result":[{"a":"}{\"]"}],"error":null}{"method":"update","params":["x"],"id":null}
            {"id":"echo","method":"echo","params":[]}"#;
        let messages = scan(&[stream]).expect("valid");
        assert_eq!(messages.len(), 3);
        assert!(matches!(&messages[0], Message::Response { result: Ok(_), .. }));
        assert!(matches!(&messages[1], Message::Notification { method, .. } if method == "update"));
        assert!(matches!(&messages[2], Message::Request { id, .. } if id == "echo"));
    }

    #[test]
    fn garbage_is_refused() {
        for stream in ["HTTP/1.1 400", "]", "[1]", "{\"id\":1}", "{\"method\":3,\"id\":1}", "{\"a\" 1}"] {
            scan(&[stream.as_bytes()]).expect_err(stream);
        }
    }

    proptest! {
        #[test]
        fn any_cut_of_the_stream_gives_the_same_messages(
            texts in prop::collection::vec(".{0,20}", 1..6),
            cuts in prop::collection::vec(0usize..400, 0..20),
        ) {
            let sent: Vec<Message> = texts
                .iter()
                .enumerate()
                .map(|(n, text)| Message::Request { id: json!(n), method: text.clone(), params: json!([text, {"k": [text]}]) })
                .collect();
            let stream: Vec<u8> = sent.iter().flat_map(Message::to_bytes).collect();
            let mut ends: Vec<usize> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
            ends.push(stream.len());
            ends.sort_unstable();
            let mut start = 0;
            let pieces: Vec<&[u8]> = ends.iter().map(|&end| { let piece = &stream[start..end]; start = end; piece }).collect();
            prop_assert_eq!(scan(&pieces).expect("valid"), sent);
        }
    }
}
