//! Takes out what looks like a secret. A name that says so decides, whatever stands there; what a URL has before its `@` goes too.

use serde_json::Value;

const REMOVED: &str = "REMOVED";
const NAMES: [&str; 9] =
    ["password", "passwd", "passphrase", "secret", "token", "credential", "cookie", "privatekey", "apikey"];

fn is_secret(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    plain == "key"
        || plain.starts_with("chap")
        || plain.starts_with("psk")
        || NAMES.iter().any(|word| plain.contains(word))
}

pub(super) fn json(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let scrubbed = fields.into_iter().map(|(name, value)| {
                let value = match (is_secret(&name), value) {
                    (_, Value::Null) => Value::Null,
                    // A count or a switch is none, and a list of names tells what there is.
                    (true, value @ (Value::Bool(_) | Value::Number(_))) => value,
                    (true, _) => REMOVED.into(),
                    (false, value) => json(value),
                };
                (name, value)
            });
            Value::Object(scrubbed.collect())
        }
        Value::Array(all) => all.into_iter().map(json).collect(),
        Value::String(text) => Value::String(line(&text)),
        other => other,
    }
}

pub(super) fn text(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(line).collect();
    lines.join("\n") + if text.ends_with('\n') { "\n" } else { "" }
}

/// `name=value`, `name: value` and `scheme://user:password@host`, wherever they stand.
fn line(line: &str) -> String {
    let mut words = line.split_inclusive(char::is_whitespace).peekable();
    let mut scrubbed = String::new();
    while let Some(word) = words.next() {
        let (body, space) = word.split_at(word.trim_end().len());
        let (name, value) = body.split_once(['=', ':']).unwrap_or((body, ""));
        if is_secret(name) && (body.len() > name.len()) {
            scrubbed.push_str(&body[..=name.len()]);
            scrubbed.push_str(if value.is_empty() { space } else { REMOVED });
            match value.is_empty() {
                // The value is the rest of the line.
                true if words.peek().is_some() => {
                    scrubbed.push_str(REMOVED);
                    return scrubbed;
                }
                true => {}
                false => scrubbed.push_str(space),
            }
        } else {
            scrubbed.push_str(&without_user(body));
            scrubbed.push_str(space);
        }
    }
    scrubbed
}

fn without_user(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let authority = rest.find('/').unwrap_or(rest.len());
    match rest[..authority].rfind('@') {
        Some(at) => format!("{scheme}://{REMOVED}{}", &rest[at..]),
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json as value;

    #[test]
    fn what_is_named_as_a_secret_goes_and_the_rest_stays() {
        let before = value!({
            "Password": "a1", "nested": [{"x-auth-token": "a2", "psk_path": "/a3", "key": {"k": "a4"}, "NumTokens": 4}],
            "url": "iscsi://user%a5@192.0.2.1/iqn/0", "SerialNumber": "S123", "Secrets": null,
            "line": "console=ttyS0 api_token=a6 quiet", "note": "password: a7 and more",
        });
        let after = json(before).to_string();
        for secret in 1..=7 {
            assert!(!after.contains(&format!("a{secret}")), "a{secret} is left in {after}");
        }
        for kept in ["S123", "console=ttyS0", "quiet", "@192.0.2.1/iqn/0", "\"NumTokens\":4", "null"] {
            assert!(after.contains(kept), "{kept} is gone from {after}");
        }
    }

    #[test]
    fn text_is_scrubbed_line_by_line() {
        let before =
            "user root\nPASSWORD=b1 other\nsecret: b2 b3\nMAC 02:00:00:00:00:01\nhttps://admin:b4@[2001:db8::1]/x\n";
        let after = text(before);
        for secret in ["b1", "b2", "b3", "b4"] {
            assert!(!after.contains(secret), "{after}");
        }
        assert!(
            after.contains("MAC 02:00:00:00:00:01\n") && after.contains("other") && after.ends_with("/x\n"),
            "{after}"
        );
    }
}
