//! Classes of characters: Go's names for them, in the crate's words.

use super::fault::Fault;

/// `\d`, `\s` and `\w` are ASCII's, as in Go; the capital ones are all else.
pub(super) fn perl(letter: char) -> Option<&'static str> {
    Some(match letter {
        'd' => "[0-9]",
        'D' => "[^0-9]",
        's' => r"[\t\n\x0c\r\x20]",
        'S' => r"[^\t\n\x0c\r\x20]",
        'w' => "[0-9A-Za-z_]",
        'W' => "[^0-9A-Za-z_]",
        _ => return None,
    })
}

const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// `[:name:]` or `[:^name:]`; both languages have the same ones, all ASCII's.
pub(super) fn posix(name: &str) -> Result<String, Fault> {
    let plain = name.strip_prefix('^').unwrap_or(name);
    if POSIX.contains(&plain) { Ok(format!("[[:{name}:]]")) } else { Err(Fault::Invalid) }
}

/// Names whose tables are the same in both, but for characters that are younger than Go's tables.
const CATEGORIES: [&str; 29] = [
    "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Pe", "Pf", "Pi",
    "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zs",
];
const SCRIPTS: [&str; 13] = [
    "Arabic",
    "Armenian",
    "Cyrillic",
    "Devanagari",
    "Georgian",
    "Greek",
    "Han",
    "Hangul",
    "Hebrew",
    "Hiragana",
    "Katakana",
    "Latin",
    "Thai",
];

/// What is behind `\p` or `\P`, and what is left behind that.
pub(super) fn unicode(negated: bool, text: &str) -> Result<(String, &str), Fault> {
    let (name, rest) = match text.strip_prefix('{') {
        Some(text) => text.split_once('}').ok_or(Fault::Invalid)?,
        None => text.split_at(text.chars().next().ok_or(Fault::Invalid)?.len_utf8()),
    };
    let (negated, name) = name.strip_prefix('^').map_or((negated, name), |name| (!negated, name));
    let property = match name {
        _ if CATEGORIES.contains(&name) => "gc",
        _ if SCRIPTS.contains(&name) => "sc",
        _ => return Err(Fault::NotServed("\\p with such a name".to_owned())),
    };
    let letter = if negated { 'P' } else { 'p' };
    Ok((format!("\\{letter}{{{property}={name}}}"), rest))
}
