//! Texts. Go's count in bytes; where a text would end within a character, it is refused.

use super::convert::{quoted, text, texts};
use super::{Function, LONGEST, bounded, fault, function, int_of, is_true, items, str_of, string, too_long};
use gotmpl::{Result, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    function("hello", "", |_| Ok(string("Hello!"))),
    function("fail", "s", |a| Err(fault(str_of(&a[0])))),
    function("toString", "a", |a| bounded(text(&a[0]))),
    function("upper", "s", |a| bounded(str_of(&a[0]).chars().map(upper).collect::<String>())),
    function("lower", "s", |a| bounded(str_of(&a[0]).chars().map(lower).collect::<String>())),
    function("title", "s", |a| bounded(title(str_of(&a[0])))),
    function("untitle", "s", |a| bounded(first_of_words(str_of(&a[0]), lower))),
    function("swapcase", "s", |a| {
        let swap = |c: char| if c.is_lowercase() { upper(c) } else { lower(c) };
        bounded(str_of(&a[0]).chars().map(swap).collect::<String>())
    }),
    function("trim", "s", |a| Ok(string(str_of(&a[0]).trim()))),
    function("trimAll", "ss", trim_all),
    function("trimall", "ss", trim_all),
    function("trimPrefix", "ss", |a| {
        let (prefix, all) = (str_of(&a[0]), str_of(&a[1]));
        Ok(string(all.strip_prefix(prefix).unwrap_or(all)))
    }),
    function("trimSuffix", "ss", |a| {
        let (suffix, all) = (str_of(&a[0]), str_of(&a[1]));
        Ok(string(all.strip_suffix(suffix).unwrap_or(all)))
    }),
    function("nospace", "s", |a| {
        let all = str_of(&a[0]);
        // Where there is a space at all, each byte is taken for a character.
        let kept = || all.bytes().map(char::from).filter(|c| !c.is_whitespace());
        if kept().count() == all.len() { Ok(a[0].clone()) } else { bounded(kept().collect::<String>()) }
    }),
    function("initials", "s", |a| Ok(string(&initials(str_of(&a[0]))))),
    function("replace", "sss", |a| {
        let (from, to, all) = (str_of(&a[0]), str_of(&a[1]), str_of(&a[2]));
        let length = all.len().saturating_add(all.matches(from).count().saturating_mul(to.len()));
        if length > LONGEST + all.len() { Err(too_long()) } else { bounded(all.replace(from, to)) }
    }),
    function("contains", "ss", |a| is_true(str_of(&a[1]).contains(str_of(&a[0])))),
    function("hasPrefix", "ss", |a| is_true(str_of(&a[1]).starts_with(str_of(&a[0])))),
    function("hasSuffix", "ss", |a| is_true(str_of(&a[1]).ends_with(str_of(&a[0])))),
    function("quote", "a*", |a| bounded(joined(a, |value| quoted(&text(value))))),
    function("squote", "a*", |a| bounded(joined(a, |value| format!("'{}'", text(value))))),
    function("cat", "a*", |a| bounded(joined(a, text))),
    function("indent", "is", |a| bounded(indented(&a[0], &a[1])?)),
    function("nindent", "is", |a| bounded(format!("\n{}", indented(&a[0], &a[1])?))),
    function("repeat", "is", |a| {
        let times = usize::try_from(int_of(&a[0])).map_err(|_| fault("repeat: a count is negative"))?;
        let one = str_of(&a[1]);
        if one.len().saturating_mul(times) > LONGEST { Err(too_long()) } else { Ok(string(&one.repeat(times))) }
    }),
    function("trunc", "is", |a| {
        let (length, all) = (int_of(&a[0]), str_of(&a[1]));
        let bytes = usize::try_from(length.unsigned_abs()).unwrap_or(usize::MAX);
        match length {
            _ if bytes >= all.len() => Ok(string(all)),
            ..0 => cut(all, all.len() - bytes, all.len()),
            _ => cut(all, 0, bytes),
        }
    }),
    function("substr", "iis", |a| {
        let (start, end, all) = (int_of(&a[0]), int_of(&a[1]), str_of(&a[2]));
        let (start, end) = (usize::try_from(start), usize::try_from(end));
        match (start, end) {
            (Err(_), end) => cut(all, 0, end.unwrap_or(usize::MAX)),
            (Ok(start), Ok(end)) if end <= all.len() => cut(all, start, end),
            (Ok(start), _) => cut(all, start, all.len()),
        }
    }),
    function("abbrev", "is", |a| {
        let (width, all) = (int_of(&a[0]), str_of(&a[1]));
        if width < 4 { Ok(string(all)) } else { bounded(abbreviated(all, 0, width)?) }
    }),
    function("abbrevboth", "iis", |a| {
        let (left, width, all) = (int_of(&a[0]), int_of(&a[1]), str_of(&a[2]));
        if width < 4 || (left > 0 && width < 7) { Ok(string(all)) } else { bounded(abbreviated(all, left, width)?) }
    }),
    function("wrap", "is", |a| wrapped(str_of(&a[1]), int_of(&a[0]), "\n", false)),
    function("wrapWith", "iss", |a| {
        let separator = str_of(&a[1]);
        let separator = if separator.is_empty() { "\n" } else { separator };
        wrapped(str_of(&a[2]), int_of(&a[0]), separator, true)
    }),
    function("plural", "ssi", |a| Ok(if int_of(&a[2]) == 1 { a[0].clone() } else { a[1].clone() })),
    function("splitList", "ss", |a| Ok(items(split(str_of(&a[1]), str_of(&a[0])).into_iter().map(string)))),
    function("split", "ss", |a| Ok(numbered(&split(str_of(&a[1]), str_of(&a[0]))))),
    function("splitn", "sis", |a| {
        let (separator, all) = (str_of(&a[0]), str_of(&a[2]));
        let Ok(most) = usize::try_from(int_of(&a[1])) else { return Ok(numbered(&split(all, separator))) };
        if separator.is_empty() {
            return Err(fault("splitn: write a separator"));
        }
        Ok(numbered(&all.splitn(most, separator).collect::<Vec<_>>()))
    }),
    function("join", "sa", |a| bounded(texts(&a[1]).join(str_of(&a[0])))),
    function("toStrings", "a", |a| Ok(items(texts(&a[0]).iter().map(|text| string(text))))),
    function("sortAlpha", "a", |a| {
        let mut sorted = if matches!(a[0], Value::List(_)) { texts(&a[0]) } else { vec![text(&a[0])] };
        sorted.sort();
        Ok(items(sorted.iter().map(|text| string(text))))
    }),
];

/// Go's: one character for one, and none that depends on its neighbours.
fn upper(c: char) -> char {
    // Those with an iota below have one character in capitals too, by its title case.
    let titled = match u32::from(c) {
        code @ (0x1f80..=0x1f87 | 0x1f90..=0x1f97 | 0x1fa0..=0x1fa7) => char::from_u32(code + 8),
        code @ (0x1fb3 | 0x1fc3 | 0x1ff3) => char::from_u32(code + 9),
        _ => None,
    };
    titled.or_else(|| single(c.to_uppercase())).unwrap_or(c)
}

fn lower(c: char) -> char {
    match c {
        // Its first character is a plain i, its second one a dot above.
        'İ' => 'i',
        _ => single(c.to_lowercase()).unwrap_or(c),
    }
}

fn single(mut all: impl Iterator<Item = char>) -> Option<char> {
    all.next().filter(|_| all.next().is_none())
}

fn title(all: &str) -> String {
    let ends_word = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => false,
        _ if c.is_ascii() => true,
        _ => !c.is_alphanumeric() && c.is_whitespace(),
    };
    let mut before = ' ';
    let each = all.chars().map(|c| {
        let titled = if ends_word(before) { upper(c) } else { c };
        before = c;
        titled
    });
    each.collect()
}

fn first_of_words(all: &str, change: fn(char) -> char) -> String {
    let mut begins = true;
    let each = all.chars().map(|c| {
        let is_first = begins && !c.is_whitespace();
        begins = c.is_whitespace();
        if is_first { change(c) } else { c }
    });
    each.collect()
}

/// Of each byte, taken for a character.
fn initials(all: &str) -> String {
    let mut begins = true;
    let each = all.bytes().map(char::from).filter(|c| {
        let is_first = begins && !c.is_whitespace();
        begins = c.is_whitespace();
        is_first
    });
    each.collect()
}

fn trim_all(a: &[Value]) -> Result<Value> {
    let cut = str_of(&a[0]);
    Ok(string(str_of(&a[1]).trim_matches(|c| cut.contains(c))))
}

fn joined(arguments: &[Value], each: impl Fn(&Value) -> String) -> String {
    let given = arguments.iter().filter(|argument| !matches!(argument, Value::Nil));
    given.map(each).collect::<Vec<_>>().join(" ")
}

fn indented(width: &Value, lines: &Value) -> Result<String> {
    let width = usize::try_from(int_of(width)).ok().filter(|width| *width <= 1024);
    let pad = " ".repeat(width.ok_or_else(|| fault("indent: write 0 to 1024 columns"))?);
    let lines = str_of(lines);
    // Not longer than what can be rendered, whatever the number of lines.
    if lines.len().saturating_add(lines.matches('\n').count().saturating_mul(pad.len())) > LONGEST {
        return Err(too_long());
    }
    Ok(format!("{pad}{}", lines.replace('\n', &format!("\n{pad}"))))
}

/// Without a separator: each character.
fn split<'a>(all: &'a str, separator: &str) -> Vec<&'a str> {
    if separator.is_empty() {
        return all.split_inclusive(|_| true).collect();
    }
    all.split(separator).collect()
}

fn numbered(parts: &[&str]) -> Value {
    super::super::values::map(parts.iter().enumerate().map(|(at, part)| (format!("_{at}"), string(part))))
}

fn slice(all: &str, start: usize, end: usize) -> Result<&str> {
    if start > end || end > all.len() {
        return Err(fault("a place is outside of the text"));
    }
    all.get(start..end).ok_or_else(|| fault("a text would end within a character"))
}

fn cut(all: &str, start: usize, end: usize) -> Result<Value> {
    slice(all, start, end).map(string)
}

/// `width`: at least 4, or 7 with something left away on the left.
fn abbreviated(all: &str, offset: i64, width: i64) -> Result<String> {
    let width = usize::try_from(width).unwrap_or(usize::MAX);
    if all.len() <= width {
        return Ok(all.to_owned());
    }
    let kept = width - 3;
    let offset = usize::try_from(offset).unwrap_or_default().min(all.len());
    let offset = if all.len() - offset < kept { all.len() - kept } else { offset };
    if offset <= 4 {
        return Ok(format!("{}...", slice(all, 0, kept)?));
    }
    if width < 7 {
        return Ok(String::new());
    }
    if offset + kept < all.len() {
        return Ok(format!(
            "...{}",
            abbreviated(slice(all, offset, all.len())?, 0, i64::try_from(kept).unwrap_or_default())?
        ));
    }
    Ok(format!("...{}", slice(all, all.len() - kept, all.len())?))
}

/// Lines of `width` bytes at most, broken at spaces; a longer word stays whole unless `breaks_words`.
fn wrapped(all: &str, width: i64, separator: &str, breaks_words: bool) -> Result<Value> {
    let width = usize::try_from(width).unwrap_or_default().max(1);
    let mut out = String::new();
    let mut rest = all;
    while rest.len() > width {
        if let Some(without) = rest.strip_prefix(' ') {
            rest = without;
            continue;
        }
        let space = rest.as_bytes()[..=width].iter().rposition(|byte| *byte == b' ');
        let after = || rest.as_bytes()[width..].iter().position(|byte| *byte == b' ').map(|at| at + width);
        let (line, next) = match space {
            Some(space) => (space, space + 1),
            None if breaks_words => (width, width),
            None => match after() {
                Some(space) => (space, space + 1),
                None => break,
            },
        };
        out.push_str(slice(rest, 0, line)?);
        out.push_str(separator);
        if out.len() > LONGEST {
            return Err(too_long());
        }
        rest = slice(rest, next, rest.len())?;
    }
    bounded(out + rest)
}
