//! Regular expressions. The patterns are Go's, the matching is the crate `regex`'s, which has the same rule for which match it is
//! (leftmost, then the first alternative): `pattern.rs` writes Go's syntax in the crate's, and here is what Go does with matches, empty
//! ones above all. A search takes time in proportion to the text; how much a whole rendering may search is bounded by the `Meter`.

mod class;
mod expand;
mod fault;
mod pattern;

use super::{
    Function, LONGEST, Meter, bounded, fault, function, int_of, is_true, items, metered, str_of, string, too_long,
};
use fault::Fault;
use gotmpl::{Result, Value};
use pattern::Pattern;
use regex::{Regex, RegexBuilder};

pub(super) const FUNCTIONS: &[Function] = &[
    // This one alone takes what is no regular expression for one that never matches.
    metered("regexMatch", "ss", |a, meter| match Expression::new(&a[0], meter)? {
        Some(expression) => is_true(expression.find(str_of(&a[1]), 0, meter)?.is_some()),
        None => is_true(false),
    }),
    metered("mustRegexMatch", "ss", |a, meter| is_true(compiled(a, meter)?.find(str_of(&a[1]), 0, meter)?.is_some())),
    metered("regexFind", "ss", find),
    metered("mustRegexFind", "ss", find),
    metered("regexFindAll", "ssi", find_all),
    metered("mustRegexFindAll", "ssi", find_all),
    metered("regexReplaceAll", "sss", replace),
    metered("mustRegexReplaceAll", "sss", replace),
    metered("regexReplaceAllLiteral", "sss", replace_by_text),
    metered("mustRegexReplaceAllLiteral", "sss", replace_by_text),
    metered("regexSplit", "ssi", split),
    metered("mustRegexSplit", "ssi", split),
    function("regexQuoteMeta", "s", |a| {
        let mut out = String::new();
        for c in str_of(&a[0]).chars() {
            if r"\.+*?()|[]{}^$".contains(c) {
                out.push('\\');
            }
            out.push(c);
        }
        bounded(out)
    }),
];

/// A longer pattern is refused before it is read.
const LONGEST_PATTERN: usize = 1024;
/// Of the program that is made of a pattern, and of what is kept while it runs.
const PROGRAM: usize = 256 << 10;
const STATES: usize = 1 << 20;
/// What a pattern costs that is compiled, in bytes searched: so that a loop does not compile any number of them.
const COMPILED: usize = 4096;

struct Expression {
    regex: Regex,
    /// Of the groups, from 1 on.
    names: Vec<Option<String>>,
}

/// Byte places of a match.
type Place = (usize, usize);

/// `Ok(None)`: Go refuses the pattern too.
impl Expression {
    fn new(pattern: &Value, meter: &Meter) -> Result<Option<Self>> {
        let pattern = str_of(pattern);
        if pattern.len() > LONGEST_PATTERN {
            return Err(fault(not_served(&format!("a pattern of more than {LONGEST_PATTERN} bytes"))));
        }
        meter.spend(COMPILED)?;
        let Pattern { text, names } = match pattern::translated(pattern) {
            Ok(translated) => translated,
            Err(Fault::Invalid) => return Ok(None),
            Err(Fault::NotServed(what)) => return Err(fault(not_served(&what))),
        };
        let built = RegexBuilder::new(&text).size_limit(PROGRAM).dfa_size_limit(STATES).build();
        let regex = built.map_err(|_| fault(not_served("a pattern of this size or depth")))?;
        Ok(Some(Self { regex, names }))
    }

    /// From `start` on, with what is before it in view, as `^` and `\b` need it.
    fn find(&self, text: &str, start: usize, meter: &Meter) -> Result<Option<Place>> {
        meter.spend(text.len() - start)?;
        Ok(self.regex.find_at(text, start).map(|found| (found.start(), found.end())))
    }

    /// Up to `most` matches; an empty one right behind another is none.
    fn places(&self, text: &str, most: usize, meter: &Meter) -> Result<Vec<Place>> {
        let (mut places, mut from, mut last_end) = (Vec::new(), 0, None);
        while places.len() < most && from <= text.len() {
            let Some(found) = self.find(text, from, meter)? else { break };
            let is_empty = found.1 == from;
            if !(is_empty && last_end == Some(found.0)) {
                places.push(found);
            }
            from = if is_empty { from + width(text, from).max(1) } else { found.1 };
            last_end = Some(found.1);
        }
        Ok(places)
    }

    /// `replacement` writes what stands in a match's place.
    fn replaced(
        &self,
        text: &str,
        meter: &Meter,
        mut replacement: impl FnMut(&mut String, Place) -> Result<()>,
    ) -> Result<Value> {
        let (mut out, mut last_end, mut from) = (String::new(), 0, 0);
        while from <= text.len() {
            let Some(place @ (start, end)) = self.find(text, from, meter)? else { break };
            out.push_str(&text[last_end..start]);
            if end > last_end || start == 0 {
                replacement(&mut out, place)?;
            }
            if out.len() > LONGEST {
                return Err(too_long());
            }
            last_end = end;
            let next = from + width(text, from);
            from = if next > end {
                next
            } else if from + 1 > end {
                from + 1
            } else {
                end
            };
        }
        out.push_str(&text[last_end..]);
        bounded(out)
    }
}

fn not_served(what: &str) -> String {
    format!("{what} is not served in regular expressions")
}

/// Of the character at this place; 0 at the end.
fn width(text: &str, at: usize) -> usize {
    text[at..].chars().next().map_or(0, char::len_utf8)
}

fn compiled(a: &[Value], meter: &Meter) -> Result<Expression> {
    Expression::new(&a[0], meter)?.ok_or_else(|| fault("this is no regular expression"))
}

fn find(a: &[Value], meter: &Meter) -> Result<Value> {
    let text = str_of(&a[1]);
    let found = compiled(a, meter)?.find(text, 0, meter)?;
    Ok(string(found.map_or("", |(start, end)| &text[start..end])))
}

/// A negative number is all of them.
fn find_all(a: &[Value], meter: &Meter) -> Result<Value> {
    let text = str_of(&a[1]);
    let most = usize::try_from(int_of(&a[2])).unwrap_or(usize::MAX);
    let places = compiled(a, meter)?.places(text, most, meter)?;
    Ok(items(places.into_iter().map(|(start, end)| string(&text[start..end]))))
}

fn replace_by_text(a: &[Value], meter: &Meter) -> Result<Value> {
    let by = str_of(&a[2]);
    compiled(a, meter)?.replaced(str_of(&a[1]), meter, |out, _| {
        out.push_str(by);
        Ok(())
    })
}

fn replace(a: &[Value], meter: &Meter) -> Result<Value> {
    let (text, by) = (str_of(&a[1]), str_of(&a[2]));
    let expression = compiled(a, meter)?;
    let parts = expand::parts(by, &expression.names).map_err(|what| fault(not_served(&what)))?;
    let has_groups = parts.iter().any(|part| matches!(part, expand::Part::Groups(_)));
    expression.replaced(text, meter, |out, (start, _)| {
        let mut captures = None;
        if has_groups {
            // The groups of this very match, by one more search, which begins where the match does.
            meter.spend(text.len() - start)?;
            captures = expression.regex.captures_at(text, start);
        }
        for part in &parts {
            let group = |group: usize| captures.as_ref().and_then(|all| all.get(group));
            out.push_str(match *part {
                expand::Part::Text(text) => text,
                expand::Part::Groups(ref groups) => {
                    groups.iter().find_map(|at| group(*at)).map_or("", |found| found.as_str())
                }
            });
            if out.len() > LONGEST {
                return Err(too_long());
            }
        }
        Ok(())
    })
}

/// `most` as in Go: 0 for none, negative for all; the last part is what is left.
fn split(a: &[Value], meter: &Meter) -> Result<Value> {
    let (text, most) = (str_of(&a[1]), usize::try_from(int_of(&a[2])).unwrap_or(usize::MAX));
    let expression = compiled(a, meter)?;
    if most == 0 {
        return Ok(items([]));
    }
    if text.is_empty() && !str_of(&a[0]).is_empty() {
        return Ok(items([string("")]));
    }
    let (mut parts, mut begin, mut end) = (Vec::new(), 0, 0);
    for (start, behind) in expression.places(text, most, meter)? {
        if parts.len() >= most - 1 {
            break;
        }
        end = start;
        if behind != 0 {
            parts.push(string(&text[begin..end]));
        }
        begin = behind;
    }
    if end != text.len() {
        parts.push(string(&text[begin..]));
    }
    Ok(items(parts))
}
