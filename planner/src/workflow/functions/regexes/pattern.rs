//! Go's syntax of regular expressions, written in the crate's. What Go refuses is refused here, so that nothing is left to the crate's own
//! reading: every character becomes its number, every class its members, every flag is spelled out.

use super::class;
use super::fault::Fault;
use std::fmt::Write;

pub(super) struct Pattern {
    pub text: String,
    /// Of the groups, from 1 on. Go allows one name more than once, and names that begin with a digit.
    pub names: Vec<Option<String>>,
}

/// Repetitions within repetitions may come to so many, as each may alone.
const MOST: u32 = 1000;

#[derive(Clone, Copy, Default)]
struct Flags {
    fold: bool,
    lines: bool,
    dot_newline: bool,
    ungreedy: bool,
}

/// What a repetition would repeat.
struct Atom {
    /// Where it begins in what is written.
    start: usize,
    /// How often something in it is repeated by numbers.
    weight: u32,
    is_repeated: bool,
    /// Flags were set behind it: a repetition there still means this, which the crate cannot say.
    flags_behind: bool,
}

/// A group that is open, or the whole.
struct Open {
    start: usize,
    outer: Flags,
    weight: u32,
    last: Option<Atom>,
}

struct Reader<'a> {
    rest: &'a str,
    out: String,
    names: Vec<Option<String>>,
    flags: Flags,
    open: Vec<Open>,
    /// What was read just now is a repetition, which another one may not follow.
    after_repetition: bool,
}

pub(super) fn translated(pattern: &str) -> Result<Pattern, Fault> {
    let whole = Open { start: 0, outer: Flags::default(), weight: 1, last: None };
    let mut reader = Reader {
        rest: pattern,
        out: String::new(),
        names: Vec::new(),
        flags: Flags::default(),
        open: vec![whole],
        after_repetition: false,
    };
    while let Some(c) = reader.rest.chars().next() {
        let is_repetition = reader.step(c)?;
        reader.after_repetition = is_repetition;
    }
    // A group is open still.
    if reader.open.len() != 1 {
        return Err(Fault::Invalid);
    }
    Ok(Pattern { text: reader.out, names: reader.names })
}

impl Reader<'_> {
    /// Whether it was a repetition.
    fn step(&mut self, c: char) -> Result<bool, Fault> {
        match c {
            '(' => self.open_group()?,
            ')' => self.close_group()?,
            '|' => {
                self.skip(1);
                self.out.push('|');
                self.innermost()?.last = None;
            }
            '^' | '$' | '.' => {
                self.skip(1);
                self.atom(&c.to_string())?;
            }
            '[' => self.class()?,
            '*' | '+' | '?' => {
                self.skip(1);
                self.repeat(&c.to_string(), None)?;
                return Ok(true);
            }
            '{' => match repetition(self.rest) {
                Some((min, max, rest)) => {
                    self.rest = rest;
                    let (min, max) = counts(min, max)?;
                    self.repeat(&written(min, max), Some((min, max)))?;
                    return Ok(true);
                }
                None => {
                    self.skip(1);
                    self.literal('{')?;
                }
            },
            '\\' => self.escaped()?,
            other => {
                self.skip(other.len_utf8());
                self.literal(other)?;
            }
        }
        Ok(false)
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    fn innermost(&mut self) -> Result<&mut Open, Fault> {
        self.open.last_mut().ok_or(Fault::Invalid)
    }

    fn atom(&mut self, text: &str) -> Result<(), Fault> {
        let start = self.out.len();
        self.out.push_str(text);
        self.innermost()?.last = Some(Atom { start, weight: 1, is_repeated: false, flags_behind: false });
        Ok(())
    }

    fn literal(&mut self, c: char) -> Result<(), Fault> {
        self.atom(&number(c))
    }

    fn open_group(&mut self) -> Result<(), Fault> {
        let outer = self.flags;
        let start = self.out.len();
        if !self.rest.starts_with("(?") {
            self.skip(1);
            self.names.push(None);
            self.out.push('(');
        } else if let Some(named) = self.rest.strip_prefix("(?P<").or_else(|| self.rest.strip_prefix("(?<")) {
            let (name, rest) = named.split_once('>').ok_or(Fault::Invalid)?;
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return Err(Fault::Invalid);
            }
            self.rest = rest;
            self.names.push(Some(name.to_owned()));
            self.out.push('(');
        } else {
            let (flags, end, rest) = flags(self.flags, &self.rest[2..])?;
            (self.flags, self.rest) = (flags, rest);
            self.out.push_str(&flags.opening(end));
            if end == ')' {
                if let Some(last) = &mut self.innermost()?.last {
                    last.flags_behind = true;
                }
                return Ok(());
            }
        }
        self.open.push(Open { start, outer, weight: 1, last: None });
        Ok(())
    }

    fn close_group(&mut self) -> Result<(), Fault> {
        self.skip(1);
        let closed = self.open.pop().filter(|_| !self.open.is_empty()).ok_or(Fault::Invalid)?;
        self.out.push(')');
        self.flags = closed.outer;
        let outer = self.innermost()?;
        outer.weight = outer.weight.max(closed.weight);
        outer.last = Some(Atom { start: closed.start, weight: closed.weight, is_repeated: false, flags_behind: false });
        Ok(())
    }

    /// `counts`: of a repetition by numbers; `None` as the greater one is no end.
    fn repeat(&mut self, operator: &str, counts: Option<(u32, Option<u32>)>) -> Result<(), Fault> {
        let lazy = self.rest.strip_prefix('?');
        self.rest = lazy.unwrap_or(self.rest);
        if self.after_repetition {
            return Err(Fault::Invalid);
        }
        let mut atom = self.innermost()?.last.take().ok_or(Fault::Invalid)?;
        if atom.flags_behind {
            return Err(Fault::NotServed("a repetition right behind flags".to_owned()));
        }
        if let Some((min, max)) = counts {
            atom.weight = match max.unwrap_or(min) {
                0 if max.is_some() => 1,
                0 => atom.weight,
                times => atom.weight * times,
            };
            if (min >= 2 || max.is_some_and(|max| max >= 2)) && atom.weight > MOST {
                return Err(Fault::Invalid);
            }
        }
        if atom.is_repeated {
            // Behind an empty \Q\E: a repetition of a repetition, not its lazy form.
            self.out.insert_str(atom.start, "(?:");
            self.out.push(')');
        }
        self.out.push_str(operator);
        self.out.push_str(lazy.map_or("", |_| "?"));
        let open = self.innermost()?;
        open.weight = open.weight.max(atom.weight);
        open.last = Some(Atom { is_repeated: true, ..atom });
        Ok(())
    }

    fn escaped(&mut self) -> Result<(), Fault> {
        let mut after = self.rest[1..].chars();
        let letter = after.next().ok_or(Fault::Invalid)?;
        let rest = after.as_str();
        if let Some(members) = class::perl(letter) {
            self.rest = rest;
            return self.atom(members);
        }
        match letter {
            'A' | 'z' => {
                self.rest = rest;
                self.atom(&format!("\\{letter}"))
            }
            // Go's is about ASCII's letters.
            'b' | 'B' => {
                self.rest = rest;
                self.atom(&format!("(?-u:\\{letter})"))
            }
            'Q' => {
                let (text, behind) = rest.split_once("\\E").unwrap_or((rest, ""));
                self.rest = behind;
                text.chars().try_for_each(|c| self.literal(c))
            }
            'p' | 'P' => {
                let (members, rest) = class::unicode(letter == 'P', rest)?;
                self.rest = rest;
                self.atom(&members)
            }
            _ => {
                let (c, rest) = escape(&self.rest[1..])?;
                self.rest = rest;
                self.literal(c)
            }
        }
    }

    fn class(&mut self) -> Result<(), Fault> {
        self.skip(1);
        let mut out = String::from("[");
        if let Some(rest) = self.rest.strip_prefix('^') {
            self.rest = rest;
            out.push('^');
        }
        let mut is_first = true;
        while is_first || !self.rest.starts_with(']') {
            is_first = false;
            let posix = self.rest.strip_prefix("[:").and_then(|name| name.split_once(":]"));
            let mut after = self.rest.chars();
            let begins = (after.next(), after.next());
            match (posix, begins) {
                (Some((name, rest)), _) => {
                    out.push_str(&class::posix(name)?);
                    self.rest = rest;
                }
                (None, (Some('\\'), Some(letter @ ('p' | 'P')))) => {
                    let (members, rest) = class::unicode(letter == 'P', after.as_str())?;
                    out.push_str(&members);
                    self.rest = rest;
                }
                (None, (Some('\\'), Some(letter))) if class::perl(letter).is_some() => {
                    out.push_str(class::perl(letter).unwrap_or_default());
                    self.rest = after.as_str();
                }
                _ => self.members(&mut out)?,
            }
        }
        self.skip(1);
        out.push(']');
        self.atom(&out)
    }

    /// One character of a class, or a range.
    fn members(&mut self, out: &mut String) -> Result<(), Fault> {
        let first = self.member()?;
        out.push_str(&number(first));
        // `[a-]` has a and a hyphen.
        let Some(rest) = self.rest.strip_prefix('-').filter(|rest| !rest.is_empty() && !rest.starts_with(']')) else {
            return Ok(());
        };
        self.rest = rest;
        let last = self.member()?;
        if last < first {
            return Err(Fault::Invalid);
        }
        out.push('-');
        out.push_str(&number(last));
        Ok(())
    }

    fn member(&mut self) -> Result<char, Fault> {
        let mut after = self.rest.chars();
        let (c, rest) = match after.next().ok_or(Fault::Invalid)? {
            '\\' => escape(after.as_str())?,
            c => (c, after.as_str()),
        };
        self.rest = rest;
        Ok(c)
    }
}

impl Flags {
    /// `(?…)` or `(?…:` with every flag spelled out.
    fn opening(self, end: char) -> String {
        let all = [('i', self.fold), ('m', self.lines), ('s', self.dot_newline), ('U', self.ungreedy)];
        let those = |wanted: bool| all.iter().filter(move |(_, is)| *is == wanted).map(|(flag, _)| *flag);
        let (on, off): (String, String) = (those(true).collect(), those(false).collect());
        format!("(?{on}{}{off}{end}", if off.is_empty() { "" } else { "-" })
    }
}

/// What is behind `(?`: the flags then, `:` or `)`, and what is left.
fn flags(before: Flags, text: &str) -> Result<(Flags, char, &str), Fault> {
    let (mut flags, mut sets, mut seen) = (before, true, false);
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            'i' => flags.fold = sets,
            'm' => flags.lines = sets,
            's' => flags.dot_newline = sets,
            'U' => flags.ungreedy = sets,
            '-' if sets => sets = false,
            ':' | ')' if sets || seen => return Ok((flags, c, rest.as_str())),
            _ => return Err(Fault::Invalid),
        }
        seen = c != '-';
    }
    Err(Fault::Invalid)
}

/// A character by its number, so that it means nothing else.
fn number(c: char) -> String {
    let mut out = String::new();
    let done = write!(out, "\\x{{{:X}}}", u32::from(c));
    debug_assert!(done.is_ok(), "a String takes everything");
    out
}

/// What is behind a backslash, as one character.
fn escape(text: &str) -> Result<(char, &str), Fault> {
    let mut after = text.chars();
    let c = after.next().ok_or(Fault::Invalid)?;
    let rest = after.as_str();
    let simple = match c {
        'a' => '\u{7}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        'x' => return hexadecimal(rest),
        '0' => return octal(text),
        // A single digit would be a reference to a group, which neither has.
        '1'..='7' if rest.starts_with(|c: char| c.is_digit(8)) => return octal(text),
        _ if c.is_ascii() && !c.is_ascii_alphanumeric() => c,
        _ => return Err(Fault::Invalid),
    };
    Ok((simple, rest))
}

/// Up to three digits.
fn octal(text: &str) -> Result<(char, &str), Fault> {
    let digits = text.bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
    let (digits, rest) = text.split_at(digits);
    character(u32::from_str_radix(digits, 8).ok(), rest)
}

/// `41` or `{41}` of `\x41` and `\x{41}`.
fn hexadecimal(text: &str) -> Result<(char, &str), Fault> {
    let (digits, rest) = match text.strip_prefix('{') {
        Some(text) => text.split_once('}').ok_or(Fault::Invalid)?,
        None => text.split_at_checked(2).ok_or(Fault::Invalid)?,
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Fault::Invalid);
    }
    let digits = digits.trim_start_matches('0');
    let code = if digits.is_empty() { Some(0) } else { u32::from_str_radix(digits, 16).ok() };
    character(code, rest)
}

fn character(code: Option<u32>, rest: &str) -> Result<(char, &str), Fault> {
    match code {
        // Half of a character in UTF-16: no text has it, but a range may begin there.
        Some(0xd800..0xe000) => Err(Fault::NotServed("a surrogate".to_owned())),
        Some(code) => Ok((char::from_u32(code).ok_or(Fault::Invalid)?, rest)),
        None => Err(Fault::Invalid),
    }
}

/// Numbers as they are written; `None` in place of the second: there is no end.
type Written<'a> = (&'a str, Option<&'a str>, &'a str);

/// `{2}`, `{2,}` or `{2,3}`, and what is behind it; `None`: the brace is a brace.
fn repetition(text: &str) -> Option<Written<'_>> {
    let (min, rest) = digits(text.strip_prefix('{')?)?;
    let Some(rest) = rest.strip_prefix(',') else {
        return Some((min, Some(min), rest.strip_prefix('}')?));
    };
    if let Some(rest) = rest.strip_prefix('}') {
        return Some((min, None, rest));
    }
    let (max, rest) = digits(rest)?;
    Some((min, Some(max), rest.strip_prefix('}')?))
}

/// A number without superfluous zeros.
fn digits(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let is_number = !digits.is_empty() && (digits == "0" || !digits.starts_with('0'));
    is_number.then_some((digits, rest))
}

fn counts(min: &str, max: Option<&str>) -> Result<(u32, Option<u32>), Fault> {
    let limited = |digits: &str| digits.parse().ok().filter(|number: &u32| *number <= MOST).ok_or(Fault::Invalid);
    let (min, max) = (limited(min)?, max.map(limited).transpose()?);
    if max.is_some_and(|max| max < min) { Err(Fault::Invalid) } else { Ok((min, max)) }
}

fn written(min: u32, max: Option<u32>) -> String {
    max.map_or_else(|| format!("{{{min},}}"), |max| format!("{{{min},{max}}}"))
}
