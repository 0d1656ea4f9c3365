//! The files of a package, and Rust text without comments and strings, so that a word in them is not taken for code.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Every Rust file below a folder; none, if there is no such folder.
pub(super) fn files(folder: &Path) -> Result<Vec<(PathBuf, String)>> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop().filter(|next| next.is_dir()) {
        for entry in fs::read_dir(&next).with_context(|| format!("read {}", next.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
                files.push((path, text));
            }
        }
    }
    Ok(files)
}

/// Blanks comments, strings and characters; every line keeps its number.
pub(super) fn code(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(length) = raw_string(rest).filter(|_| !within_word(text, at)) {
            length
        } else if rest.starts_with('"') {
            string(rest)
        } else {
            character(rest)
        };
        if skipped == 0 {
            let next = rest.chars().next().expect("there is text left");
            out.push(next);
            at += next.len_utf8();
        } else {
            out.push(' ');
            out.extend(rest[..skipped].chars().filter(|c| *c == '\n'));
            at += skipped;
        }
    }
    out
}

fn within_word(text: &str, at: usize) -> bool {
    text[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_')
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

fn string(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    rest.len()
}

fn raw_string(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    let hashes = after.bytes().take_while(|byte| *byte == b'#').count();
    let body = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let start = rest.len() - body.len();
    Some(body.find(&end).map_or(rest.len(), |found| start + found + end.len()))
}

/// A character such as '"' or '\''; a lifetime is none.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices();
    if chars.next().map(|(_, c)| c) != Some('\'') {
        return 0;
    }
    match chars.next().map(|(_, c)| c) {
        Some('\\') => rest[2..].char_indices().skip(1).find(|(_, c)| *c == '\'').map_or(0, |(at, _)| at + 3),
        Some(_) => match chars.next() {
            Some((at, '\'')) => at + 1,
            _ => 0,
        },
        None => 0,
    }
}

/// Whether `word` stands in `line` as a word of its own.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let part = |c: char| c.is_alphanumeric() || c == '_';
        !line[..at].ends_with(part) && !line[at + word.len()..].starts_with(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_left() {
        let text = "let a = \"unsafe \\\" unsafe\"; // unsafe\n/* unsafe /* unsafe */\nunsafe */ let b = r#\"unsafe\"#;\n\
                    let c = '\"'; let d: &'static str = \"x\"; unsafe { e('\\'') }\n";
        let code = code(text);
        let lines: Vec<_> = code.lines().map(|line| has_word(line, "unsafe")).collect();
        assert_eq!(lines, [false, false, false, true], "{code}");
    }

    #[test]
    fn a_word_is_not_a_part_of_one() {
        assert!(has_word("deny(unsafe)", "unsafe") && !has_word("deny(unsafe_code)", "unsafe"));
    }
}
